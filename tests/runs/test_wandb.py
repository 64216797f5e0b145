"""Offline runs for Weights & Biases, written by the real package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import unbraid as ub


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ub.UserError, match=r'needs the package wandb.*pip install "unbraid\[wandb\]"'):
        ub.train("vae", "toy", steps=2, out=tmp_path, log="wandb", quiet=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_offline_run_has_the_log_and_the_settings(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs wandb (extra wandb)")
    with pytest.raises(ub.UserError, match="Pass one with out="):
        ub.train("vae", "toy", steps=2, log="wandb", quiet=True)
    (run,) = ub.train("vae", "toy", steps=3, out=tmp_path, log="wandb", quiet=True)
    assert run.path is not None
    (file,) = (run.path / "wandb").glob(f"offline-run-*-{run.id}/run-{run.id}.wandb")
    content = file.read_bytes()  # uncompressed records with values as JSON
    for record in run.log:
        assert json.dumps(record["kl"]).encode() in content
    assert content.count(b"train/kl") >= 3
    assert b"latents" in content
    ub.train("vae", "toy", steps=3, out=tmp_path, log="wandb", quiet=True)
    assert len(list((run.path / "wandb").glob("offline-run-*"))) == 1
