"""Models in the layout of the Hugging Face Hub: saved, loaded without data, and refused if they are not safe."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unbraid as ub

SETTINGS: dict[str, Any] = {"steps": 3, "latents": 4, "quiet": True}


@pytest.fixture
def arrays() -> Any:
    return np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)


def test_a_run_in_memory_survives(arrays: Any, tmp_path: Path) -> None:
    (run,) = ub.train("beta_vae", arrays, **SETTINGS)
    folder = run.save_pretrained(tmp_path / "model")
    loaded = ub.from_pretrained(folder)
    assert (loaded.id, loaded.log, loaded.data) == (run.id, run.log, None)
    assert torch.equal(loaded.encode(arrays), run.encode(arrays))
    assert torch.equal(loaded.sample(2), run.sample(2))
    assert {file.name for file in folder.iterdir()} == {
        "run.json", "weights.safetensors", "log.jsonl", "config.json", "README.md"
    }  # fmt: skip
    with pytest.raises(ub.UserError, match="must be an empty or new folder"):
        run.save_pretrained(folder)


def test_a_run_with_a_folder_keeps_its_files_and_scores(tmp_path: Path) -> None:
    (run,) = ub.train("vae", "toy", out=tmp_path / "runs", **SETTINGS)
    [row] = ub.score(run, "mig", quiet=True)
    folder = run.save_pretrained(tmp_path / "model")
    for name in ("run.json", "weights.safetensors", "scores.jsonl"):
        assert (folder / name).read_bytes() == (run.path / name).read_bytes()
    assert f"| mig | {row['mig.discrete_mig']:.4f} |" in (folder / "README.md").read_text()
    assert ub.load_run(folder).id == ub.from_pretrained(folder).id == run.id


def test_model_card_is_valid_and_its_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = ub.train("vae", "toy", **SETTINGS)
    folder = run.save_pretrained(tmp_path / "model")
    card = (folder / "README.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(card.partition("```python\n")[2].partition("```")[0], {})
    hub = pytest.importorskip("huggingface_hub", reason="checking a model card needs huggingface_hub (extra hub)")
    metadata = hub.ModelCard(card).data.to_dict()
    assert metadata == {"library_name": "unbraid", "tags": ["disentanglement", "representation-learning", "vae"]}


def test_code_of_ones_own_needs_consent_and_its_path_is_removed(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text("from unbraid.methods import VAE\nclass Mine(VAE):\n    pass\n")
    (run,) = ub.train(f"{source}:Mine", "toy", out=tmp_path / "runs", **SETTINGS)
    folder = run.save_pretrained(tmp_path / "model")
    assert str(tmp_path) not in (folder / "run.json").read_text()
    stored = json.loads((folder / "run.json").read_text())["spec"]["method"]["name"]
    script = f"import unbraid as ub; ub.from_pretrained({str(folder)!r})"
    import subprocess

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "trust" in done.stderr
    assert stored in done.stderr


@pytest.mark.parametrize("shape", [[0], [10**9], [1, 2], "6", [-6]])
def test_damaged_configs_are_refused(shape: Any, arrays: Any, tmp_path: Path) -> None:
    (run,) = ub.train("vae", arrays, **SETTINGS)
    folder = run.save_pretrained(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"library_name": "unbraid", "shape": shape}))
    with pytest.raises(ub.UserError, match=r"Download or save the model again\."):
        ub.from_pretrained(folder)


def test_weights_of_another_shape_are_described_without_the_words_of_a_library(arrays: Any, tmp_path: Path) -> None:
    (run,) = ub.train("vae", arrays, **SETTINGS)
    folder = run.save_pretrained(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"library_name": "unbraid", "shape": [7]}))
    with pytest.raises(
        ub.UserError, match=r"do not fit the network of their spec\. The weight \S+ has the shape"
    ) as found:
        ub.from_pretrained(folder)
    assert "size mismatch" not in str(found.value)


def test_missing_files_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ub.UserError, match=r"must have a file config\.json"):
        ub.from_pretrained(tmp_path)
    with pytest.raises(ub.UserError, match="must be a folder, or OWNER/NAME"):
        ub.from_pretrained("nowhere")
    (run,) = ub.train("vae", "toy", **SETTINGS)
    with pytest.raises(ub.UserError, match="must be OWNER/NAME"):
        ub.push_to_hub(run, "name")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: ub.from_pretrained("owner/name"), lambda: ub.push_to_hub(run, "owner/name")):
        with pytest.raises(ub.UserError, match=r'pip install "unbraid\[hub\]"'):
            call()


def test_offline_errors_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub", reason="needs huggingface_hub (extra hub)")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ub.UserError, match="could not be downloaded from the Hugging Face Hub"):
        ub.from_pretrained("owner/name")
    (run,) = ub.train("vae", "toy", **SETTINGS)
    with pytest.raises(ub.UserError, match="could not be uploaded to owner/name"):
        ub.push_to_hub(run, "owner/name", token="none")


def test_an_adopted_model_is_shared_like_a_trained_one(tmp_path: Path) -> None:
    encoder = torch.nn.Linear(16, 3)
    run = ub.adopt(encoder, data="toy", name="linear", out=tmp_path / "runs")
    loaded = ub.from_pretrained(run.save_pretrained(tmp_path / "model"))
    x = ub.data.load("toy").images([0, 1])
    assert loaded.id == run.id
    assert torch.equal(loaded.encode(x), run.encode(x))
    with pytest.raises(ub.UserError, match="Adopt it with out="):
        ub.adopt(encoder, data="toy", name="linear").save_pretrained(tmp_path / "other")
