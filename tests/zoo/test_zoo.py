"""The zoo: models are chosen, written in half precision, loaded, copied, and refused if they are damaged."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
import torch

import unbraid as ub
from support.evidence import evidence_script
from unbraid.cli.dispatch import main
from unbraid.methods import METHODS, BetaVAE, FactorVAE
from unbraid.runs.tensor_files import read_tensors, write_tensors
from unbraid.zoo import catalogue
from unbraid.zoo.catalogue import ZooFacts
from unbraid.zoo.compact import round_weights, thin_log, write_compact

SETTINGS = {"data": "toy", "steps": 3, "latents": 4, "quiet": True}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of beta-VAE and two of FactorVAE, with scores."""
    out = tmp_path_factory.mktemp("source")
    ub.train(BetaVAE(beta=2.0), seeds=range(3), out=out, **SETTINGS)
    ub.train(FactorVAE(), seeds=range(2), out=out, add=True, **SETTINGS)
    ub.score(out, "mig", quiet=True)
    return out


@pytest.fixture(scope="module")
def zoo(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zoo of these runs, as the script writes it."""
    out = tmp_path_factory.mktemp("zoo") / "models"
    script = evidence_script("make_zoo")
    lines = [*script.write_models(script.choose(script.search_runs(source)), out), *script.score_models(out, ["mig"])]
    assert len(lines) == 8
    return out


def test_the_median_and_the_best_run_are_chosen(source: Path, zoo: Path) -> None:
    runs = {run.id: run for run in ub.load_runs(source)}
    migs = {row["run"]: row["mig.discrete_mig"] for row in ub.score(source, "mig", quiet=True)}
    models = {model.name: model for model in ub.zoo.list(zoo)}
    names = ["toy/beta_vae/median", "toy/beta_vae/best", "toy/factor_vae/median", "toy/factor_vae/best"]
    assert list(models) == names
    for method, seeds in (("beta_vae", 3), ("factor_vae", 2)):
        ordered = sorted((mig, run) for run, mig in migs.items() if runs[run].spec.flat()["method"] == method)
        assert models[f"toy/{method}/median"].run_folder.spec.id == ordered[(seeds - 1) // 2][1]
        assert models[f"toy/{method}/best"].run_folder.spec.id == ordered[-1][1]
        assert models[f"toy/{method}/best"].facts.exact_scores["mig.discrete_mig"] == ordered[-1][0]
        assert models[f"toy/{method}/best"].facts.runs == seeds


def test_models_can_be_chosen_by_their_loss(source: Path, tmp_path: Path) -> None:
    """The best run has the lowest loss. Such models have no scores, and their data can have a name of their own."""
    script = evidence_script("make_zoo")
    chosen = script.choose(script.search_runs(source, "method=beta_vae"), "loss", "moved_toy")
    lines = [*script.write_models(chosen, tmp_path), *script.score_models(tmp_path)]
    assert len(lines) == 2
    losses = sorted(run.log[-1]["loss"] for run in ub.load_runs(source) if isinstance(run.spec.method, BetaVAE))
    models = {model.name: model for model in ub.zoo.list(tmp_path)}
    assert models["moved_toy/beta_vae/best"].facts.exact_scores == {"loss": losses[0]}
    assert models["moved_toy/beta_vae/median"].facts.exact_scores == {"loss": losses[1]}
    assert "has the lowest `loss`" in models["moved_toy/beta_vae/best"].card
    assert "scores above" not in models["moved_toy/beta_vae/best"].card
    assert models["moved_toy/beta_vae/best"].scores == {}


def test_a_loaded_model_is_the_run_with_rounded_weights(source: Path, zoo: Path) -> None:
    model = ub.zoo.load("toy/beta_vae/best", folder=zoo)
    run = next(run for run in ub.load_runs(source) if run.id == model.id)
    assert model.path is None
    assert model.log == run.log
    for name, value in model.net.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, run.net.state_dict()[name].half().float())
    x = ub.data.load("toy").images(range(20))
    torch.testing.assert_close(model.encode(x), run.encode(x), rtol=0.01, atol=0.01)


def test_a_loaded_model_is_scored_and_drawn(zoo: Path, tmp_path: Path) -> None:
    before = sorted(zoo.rglob("*"))
    model = ub.zoo.load("toy/factor_vae", folder=zoo)
    [row] = ub.score(model, "mig", quiet=True)
    kept = next(m for m in ub.zoo.list(zoo) if m.name == "toy/factor_vae/median").scores
    assert row["mig.discrete_mig"] == pytest.approx(kept["mig.discrete_mig"], abs=1e-6)
    assert ub.report(model, metrics=["mig"], out=tmp_path / "report.html", quiet=True).exists()
    assert sorted(zoo.rglob("*")) == before, "the folder of models is not changed"


@pytest.mark.slow
def test_a_model_of_images_is_traversed_and_exported(tmp_path: Path) -> None:
    (run,) = ub.train("vae", "sprites", steps=2, latents=3, out=tmp_path / "runs", quiet=True)
    write_compact(run, tmp_path / "zoo" / "sprites" / "vae" / "best", ZooFacts("best", 1, "mig.discrete_mig"))
    model = ub.zoo.load("sprites/vae", folder=tmp_path / "zoo")
    assert ub.traverse(model, out=tmp_path / "pictures", columns=2)
    assert ub.export(model, out=tmp_path / "files", format="torch", quiet=True)


def test_a_copy_is_an_ordinary_run_folder(zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "copy", "toy/beta_vae", str(tmp_path / "runs"), "--folder", str(zoo)]) == 0
    assert main(["score", str(tmp_path / "runs"), "--metrics", "mig", "--no-bounds", "--quiet"]) == 0
    run = ub.load_run(tmp_path / "runs")
    assert run.path == tmp_path / "runs" / run.id
    assert torch.equal(run.sample(3), ub.zoo.load("toy/beta_vae", folder=zoo).sample(3))
    assert run.save_pretrained(tmp_path / "saved").exists()
    with pytest.raises(ub.UserError, match="must be an empty or new folder"):
        ub.zoo.copy("toy/beta_vae/median", tmp_path / "runs", folder=zoo)


def test_the_exact_run_is_preferred_to_its_rounded_copy(source: Path, zoo: Path, tmp_path: Path) -> None:
    copied = ub.zoo.copy("toy/beta_vae/best", tmp_path / "runs", folder=zoo)
    exact = next(run for run in ub.load_runs([tmp_path / "runs", source]) if run.id == copied.name)
    assert exact.path is not None
    assert exact.path.parent == source


def test_commands_list_and_show(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "list", "--folder", str(zoo)]) == 0
    assert "toy/factor_vae/best" in capsys.readouterr().out
    assert main(["zoo", "show", "toy/factor_vae", "--folder", str(zoo)]) == 0
    shown = capsys.readouterr().out
    assert 'ub.zoo.load("toy/factor_vae/median")' in shown
    assert "Licence of the weights: Apache-2.0." in shown
    assert "| mig |" in shown
    assert "The scores above are those of the rounded weights" in shown
    slips = [
        (["show", "toy/beta_va"], "toy/beta_vae/"),
        (["show"], "Give the name"),
        (["copy", "toy/beta_vae"], "Give the folder"),
    ]
    for wrong, message in slips:
        assert main(["zoo", *wrong, "--folder", str(zoo)]) == 2
        assert message in capsys.readouterr().err


def test_networks_for_training_are_left_out_and_missed(zoo: Path) -> None:
    path = next(m for m in ub.zoo.list(zoo) if m.name == "toy/factor_vae/best").path
    tensors, metadata = read_tensors(path / "weights.safetensors")
    assert {value.dtype for value in tensors.values()} == {torch.float16}
    assert not any(name.startswith("critic.") for name in tensors)
    assert metadata["left_out"] == ["critic"]
    model = ub.zoo.load("toy/factor_vae/best", folder=zoo)
    with pytest.raises(ub.UserError, match="needs the critic of the run"):
        model.net.critic(torch.zeros(2, 4))


@pytest.mark.parametrize("name", METHODS)
def test_only_networks_that_a_method_has_are_left_out(name: str) -> None:
    networks = METHODS[name].training_networks
    assert not {"encoder", "decoder"} & {*networks}
    assert (networks == ("critic",)) == (name == "factor_vae")


def test_damaged_models_are_refused(zoo: Path, tmp_path: Path) -> None:
    copied = tmp_path / "models"
    shutil.copytree(zoo, copied)
    path = copied / "toy" / "beta_vae" / "best" / "weights.safetensors"
    tensors, metadata = read_tensors(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ub.UserError, match="does not match its checksum"):
        ub.zoo.load("toy/beta_vae/best", folder=copied)
    write_tensors(path, tensors, {**metadata, "id": "0" * 12})
    with pytest.raises(ub.UserError, match="belongs to the run 000000000000"):
        ub.zoo.load("toy/beta_vae/best", folder=copied)
    write_tensors(path, tensors, {**metadata, "left_out": ["encoder"]})
    with pytest.raises(ub.UserError, match="must have all networks that encode or decode"):
        ub.zoo.load("toy/beta_vae/best", folder=copied)
    facts = copied / "toy" / "beta_vae" / "median" / "zoo.json"
    facts.write_text(json.dumps({"choice": "worst", "runs": 3, "metric": "mig.discrete_mig"}))
    with pytest.raises(ub.UserError, match="must be one of median, best"):
        ub.zoo.list(copied)


def test_a_model_card_that_is_not_text_is_refused(zoo: Path, tmp_path: Path) -> None:
    shutil.copytree(zoo, tmp_path / "models")
    model = ub.zoo.list(tmp_path / "models")[0]
    (model.path / "README.md").write_bytes(b"\xff")
    with pytest.raises(ub.UserError, match=r"README\.md must be text in UTF-8.*Install unbraid again"):
        _ = model.card


def test_models_within_the_limit_are_written(source: Path, tmp_path: Path) -> None:
    script = evidence_script("make_zoo")
    candidates = script.choose(script.search_runs(source))
    assert [candidate.facts.choice for candidate in candidates] == ["median", "median", "best", "best"]
    size = next(iter(ub.zoo.list(_written(script, candidates[:1], tmp_path / "one")))).size
    lines = list(script.write_models(candidates, tmp_path / "some", limit=2.5 * size / 1e6))
    assert "left out" in lines[-1]
    assert 0 < script.total_size(tmp_path / "some") <= 2.5 * size
    assert all("kept" in line for line in script.write_models(candidates[:1], tmp_path / "some"))
    script.write_tar(tmp_path / "some", tmp_path / "zoo.tar.gz")
    with tarfile.open(tmp_path / "zoo.tar.gz") as archive:
        assert "toy/beta_vae/median/weights.safetensors" in archive.getnames()


def _written(script: object, candidates: object, out: Path) -> Path:
    assert len(list(script.write_models(candidates, out))) == 1  # type: ignore[attr-defined]
    return out


def test_the_script_runs_from_the_command_line(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = evidence_script("make_zoo")
    out, tar = str(tmp_path / "models"), str(tmp_path / "zoo.tar.gz")
    line = ["make_zoo.py", out, str(source), "--only", "method=beta_vae", "--no-scores", "--tar", tar]
    monkeypatch.setattr(sys, "argv", line)
    script.main()
    assert [m.scores for m in ub.zoo.list(out)] == [{}, {}]
    monkeypatch.setattr(sys, "argv", ["make_zoo.py", out, "--score", "--metrics", "mig"])
    script.main()
    assert all("mig.discrete_mig" in m.scores for m in ub.zoo.list(out))
    monkeypatch.setattr(sys, "argv", ["make_zoo.py", out, str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match="2"):
        script.main()


def test_runs_that_cannot_be_shared_are_refused(tmp_path: Path) -> None:
    (run,) = ub.train("vae", **SETTINGS)
    with pytest.raises(ub.UserError, match="needs a trained run with a folder"):
        write_compact(run, tmp_path / "model", ZooFacts("best", 1, "mig.discrete_mig"))
    with pytest.raises(ub.UserError, match="must be below 65,504"):
        round_weights({"a": torch.tensor([1e5])})
    whole = torch.arange(3)
    assert round_weights({"a": whole, "critic.a": whole}, ["critic"]) == {"a": whole}


def test_long_logs_are_thinned() -> None:
    steps = [line["step"] for line in thin_log([{"step": float(step)} for step in range(1000)])]
    assert (len(steps), steps[0], steps[-1]) == (100, 0, 999)
    assert thin_log([]) == []


def test_the_package_has_a_model_of_dsprites_that_has_learned_the_position() -> None:
    assert {"dsprites/ada_gvae/median", "dsprites/ada_gvae/best"} <= {model.name for model in ub.zoo.list()}
    run, data = ub.zoo.load("dsprites/ada_gvae/best"), ub.data.load("dsprites")
    x = data.images(data.index([[1, 3, 0, column, 16] for column in range(32)]))
    codes = run.encode(x)
    correlations = torch.corrcoef(torch.cat([codes.T, torch.arange(32.0)[None]]))[-1, :-1].abs()
    assert correlations.max() > 0.95, "one latent follows the horizontal position"
    assert 255 * (run.decode(codes) - x / 255).abs().mean() < 10, "examples are reconstructed"


def test_the_models_of_the_package_are_small_and_documented() -> None:
    models = ub.zoo.list()
    assert models
    assert sum(model.size for model in models) <= 15e6
    for model in models:
        assert model.name in model.card
        names = {"run.json", "weights.safetensors", "log.jsonl", "config.json", "README.md", "zoo.json"}
        if model.facts.metric == "loss":
            assert model.facts.exact_scores["loss"] == ub.zoo.load(model.name).log[-1]["loss"]
        else:
            names.add("scores.jsonl")
            exact = model.facts.exact_scores["mig.discrete_mig"]
            assert model.scores["mig.discrete_mig"] == pytest.approx(exact, abs=0.05)
        assert {file.name for file in model.path.iterdir()} == names


def test_the_perspective_of_a_digit_moves_it_and_its_appearance_changes_it() -> None:
    """A latent of the perspective moves the centre of a digit, and a latent of the appearance keeps it."""
    run = ub.zoo.load("mnist/c_vitae/best")
    line = torch.linspace(-2.0, 2.0, 9)
    places = torch.linspace(-1.0, 1.0, 28)
    moved = []
    for latent in range(4):
        codes = torch.zeros(9, 4)
        codes[:, latent] = line
        images = run.decode(codes)[:, 0]
        mass = images.sum((1, 2))
        centres = torch.stack([(images.sum(1) * places).sum(1), (images.sum(2) * places).sum(1)]) / mass
        moved.append(float((centres.amax(1) - centres.amin(1)).max()))
    assert min(moved[2:]) > 0.15
    assert max(moved[:2]) < min(moved[2:])


def test_a_copy_of_the_package_without_models_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalogue, "MODELS", tmp_path)
    with pytest.raises(ub.UserError, match="contains no models"):
        ub.zoo.load("dsprites/ada_gvae")
    assert main(["zoo", "list"]) == 0
    assert "contains no models" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", [model.name for model in ub.zoo.list() if model.scores])
def test_kept_scores_are_computed_again(name: str) -> None:
    """The tolerance allows for the order of sums in bfloat16, which depends on the processor."""
    kept = next(model.scores for model in ub.zoo.list() if model.name == name)
    metrics = list(dict.fromkeys(key.partition(".")[0] for key in kept))
    [row] = ub.score(ub.zoo.load(name), metrics, quiet=True)
    headlines = [f"{metric}.{ub.metrics.TRAITS[metric].headline}" for metric in metrics]
    assert {key: row[key] for key in headlines} == pytest.approx({key: kept[key] for key in headlines}, abs=0.02)
