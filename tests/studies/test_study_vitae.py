"""The VITAE studies: their runs, and the table of likelihood bounds and separation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import unbraid as ub
from unbraid.cli.dispatch import main
from unbraid.data.in_memory import Labelled
from unbraid.data.moving import MovedImages, move_images
from unbraid.errors import UserError
from unbraid.methods import CVITAE, VAE
from unbraid.nets.registry import resolve_net
from unbraid.nets.vitae import VitaeNet
from unbraid.runs.network import build_net
from unbraid.runs.results import load_results
from unbraid.scoring.appearance import appearance_columns, separation
from unbraid.studies import appearance
from unbraid.studies.appearance import AppearanceSettings, appearance_table, evaluate_run, held_out_name
from unbraid.studies.local import run_study
from unbraid.studies.planned import Setting, grid
from unbraid.studies.published import STUDIES
from unbraid.studies.reduction import Reduction
from unbraid.studies.settings import StudySettings

MODELS = ["vae", "beta_vae", "beta_tcvae", "dip_vae_ii", "u_vitae", "c_vitae"]
QUICK = AppearanceSettings(examples=200, samples=3)


@pytest.mark.parametrize(
    ("name", "net", "likelihood", "batch", "epochs", "examples", "warp"),
    [
        ("vitae_mnist", "vitae_mlp", "bernoulli", 512, 2_000, 60_000, ("affine_diffeomorphic", 4, 4)),
        ("vitae_bodies", "vitae_bodies", "normal", 256, 5_000, 10_000, ("cpab", 2, 4)),
        ("vitae_celeba", "vitae_celeba", "normal", 256, 5_000, 202_599, ("cpab", 4, 4)),
    ],
)
def test_studies_agree_with_the_supplement(
    name: str, net: str, likelihood: str, batch: int, epochs: int, examples: int, warp: tuple[str, int, int]
) -> None:
    """Section 2 of the supplement: networks, half-size for VITAE, latents, batches, epochs, and transformations."""
    runs = list(STUDIES[name]())
    assert [run.facts()["method"] for run in runs[::5]] == MODELS
    assert [run.spec.seed for run in runs] == list(range(5)) * 6
    for run in runs:
        spec, warps = run.spec, run.facts()["method"].endswith("vitae")
        assert spec.net == (f"{net}_half" if warps else net)
        assert (spec.likelihood, spec.batch, spec.latents, spec.learning_rate) == (likelihood, batch, 4, 1e-4)
        assert abs(spec.steps * batch / examples - epochs) < 1
        facts = run.facts()
        assert facts["warmup"] == 0.5  # for all models
        if warps:
            assert (facts["transform"], facts["nx"], facts["ny"]) == warp
            assert facts["perspective"] == 2


def test_decoders_of_bodies_have_half_the_units_of_table_3() -> None:
    """Both decoders of VITAE have 64 and 128 hidden units, and the decoder of the VAEs has 128 and 256."""
    for planned in (run for run in STUDIES["vitae_bodies"]() if run.spec.seed == 0):
        spec = planned.spec
        net = build_net(spec, (1, 64, 64), resolve_net(spec.net)[1])
        decoders = [net.decoder.appearance, net.decoder.perspective] if isinstance(net, VitaeNet) else [net.decoder]
        wanted = [64, 128] if isinstance(net, VitaeNet) else [128, 256]
        for decoder in decoders:
            assert isinstance(decoder, nn.Module)
            layers = [layer.out_features for layer in decoder.modules() if isinstance(layer, nn.Linear)]
            assert layers[:2] == wanted


def test_decoders_of_faces_end_in_the_sigmoid_of_table_4() -> None:
    """Whatever is decoded lies in [0, 1], also for the VAEs."""
    for planned in (run for run in STUDIES["vitae_celeba"]() if run.spec.seed == 0):
        spec = replace(planned.spec, seed=1)
        net = build_net(spec, (3, 32, 32), resolve_net(spec.net)[1])
        images = net.decode(100 * torch.randn(5, spec.latents)).detach()
        assert 0 <= float(images.min()) <= float(images.max()) <= 1


def test_stability_study_varies_parametrisation_and_learning_rate() -> None:
    """Section 3 of the supplement: equations 1 to 3, four learning rates, and the network and batches of MNIST."""
    runs = list(STUDIES["vitae_stability"]())
    assert len(runs) == 3 * 4 * 5
    assert {(run.variant, run.strength, run.level) for run in runs} == {
        (name, 10.0 ** (level - 4), level)
        for name in ("affine", "affine_decomposed", "affine_diffeomorphic")
        for level in range(4)
    }
    mnist = next(run.spec for run in STUDIES["vitae_mnist"]() if isinstance(run.spec.method, CVITAE))
    for run in runs:
        method, spec = run.spec.method, run.spec
        assert isinstance(method, CVITAE)
        assert (method.transform, spec.learning_rate) == (run.variant, run.strength)
        same = replace(spec, method=mnist.method, learning_rate=1e-4, seed=0)
        assert same == mnist
        if method.transform == "affine_diffeomorphic":
            gamma = torch.tensor([[0.0, 9.0, 0.0, -9.0, 0.0, 0.0]])  # far more than half a turn, so not bounded
            unbounded = replace(method, bound="tanh").transformer().matrix(gamma)
            assert not torch.allclose(method.transformer().matrix(gamma), unbounded)


def test_fields_of_a_setting_override_those_of_the_study() -> None:
    """They apply to the runs of that setting only."""
    settings = [Setting(VAE(), 0.0, 0), Setting(CVITAE(), 0.0, 0, {"net": "vitae_mlp_half", "latents": 4})]
    runs = [run.spec for run in grid(["sprites"], settings, 2, net="mlp", batch=8)]
    assert [(spec.net, spec.latents, spec.batch) for spec in runs] == [("mlp", 10, 8)] * 2 + [
        ("vitae_mlp_half", 4, 8)
    ] * 2


def test_a_reduced_study_keeps_the_networks() -> None:
    runs = Reduction({"method": ["c_vitae", "vae"]}, seeds=[1], steps=7, data="sprites").apply(STUDIES["vitae_mnist"]())
    assert [(run.spec.net, run.spec.steps, run.spec.data) for run in runs] == [
        ("vitae_mlp", 7, "sprites"), ("vitae_mlp_half", 7, "sprites"),
    ]  # fmt: skip


def test_missing_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, data in (("vitae_mnist", "mnist"), ("vitae_celeba", "celeba")):
        assert main(["study", name, "--plan", "--root", str(tmp_path)]) == 2
        assert f"The files of {data} must be in {tmp_path / data}" in capsys.readouterr().err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study of sprites: three models, two seeds, a few steps."""
    out = tmp_path_factory.mktemp("vitae")
    reduction = Reduction({"method": ["vae", "beta_vae", "c_vitae"]}, seeds=[0, 1], steps=4, data="sprites")
    run_study(reduction.apply(STUDIES["vitae_mnist"]()), StudySettings(out, scored=False), quiet=True)
    return out


def test_table_equals_bounds_and_separation_computed_directly(folder: Path) -> None:
    """Rows are in the order of the study, values in the order of the seeds."""
    rows = appearance_table(folder, QUICK, quiet=True)
    assert [(row["method"], row["runs"]) for row in rows] == [("vae", 2), ("beta_vae", 2), ("c_vitae", 2)]
    data = ub.data.load("sprites")
    run = next(run for run in ub.load_runs(folder) if isinstance(run.spec.method, CVITAE) and run.spec.seed == 1)
    index = QUICK.choose_rows(data)
    bound = ub.likelihood_bounds(run, data, index=index, samples=3, quiet=True)
    assert rows[2]["bounds.elbo"][1] == pytest.approx(bound["elbo"])
    assert rows[2]["bounds.iwae"][1] == pytest.approx(bound["iwae"])
    values = dict(zip(data.names, data.factors(index).numpy().T, strict=True))
    shape = {"shape": values.pop("shape")}
    found = separation(run.encode(data.images(index)).numpy(), shape, values, appearance_columns(run))
    assert rows[2]["separation.score"][1] == pytest.approx(found.score)
    assert rows[2]["separation.x.perspective"][1] == pytest.approx(found.predictability["x"][1])
    assert not any("upright.accuracy" in row for row in rows)


def test_scores_are_stored_and_are_columns_of_the_results(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = appearance_table(folder, QUICK, quiet=True)
    table = load_results(folder).set_index("method")
    assert table.loc["vae", "bounds.iwae"].tolist() == first[0]["bounds.iwae"]
    assert table["separation.score"].notna().all()

    def never(*given: Any) -> None:
        raise AssertionError("evaluated again")

    monkeypatch.setattr(appearance, "evaluate_run", never)
    assert appearance_table(folder, QUICK, quiet=True) == first
    with pytest.raises(AssertionError, match="evaluated again"):
        appearance_table(folder, AppearanceSettings(examples=200, samples=4), quiet=True)


def test_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [str(folder), "--examples", "200", "--samples", "3", "--quiet"]
    assert main(["appearance", *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("sprites: ")
    assert lines[1].split()[:4] == ["model", "runs", "parameters", "ELBO"]
    assert [line.split()[0] for line in lines[3:6]] == ["vae", "beta_vae", "c_vitae"]
    assert main(["appearance", *flags, "--json", "--perspective", "x,y"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["separation.score"] != appearance_table(folder, QUICK, quiet=True)[0]["separation.score"]
    assert main(["appearance", *flags, "--perspective", "z"]) == 2
    assert "factor of sprites 'z'" in capsys.readouterr().err
    assert main(["appearance", str(folder), "--examples", "3"]) == 2
    assert "at least 100. Got 3" in capsys.readouterr().err


def part(name: str, seed: int) -> MovedImages:
    """Moved images of bars: vertical if the digit is 0, horizontal if it is 1."""
    kinds = torch.arange(300) % 2
    images = torch.zeros(300, 1, 12, 12, dtype=torch.uint8)
    images[kinds == 0, :, 2:10, 5:7] = 255
    images[kinds == 1, :, 5:7, 2:10] = 255
    return move_images(Labelled(name, ["digit"], [2], images, kinds[:, None]), 10, 0.1, seed)


def test_moved_images_are_evaluated_on_the_test_part() -> None:
    """Movements are continuous factors, and the class is predicted from decoded appearances."""
    learn, test = part("bars?part=train", 0), part("bars?part=test", 1)
    assert held_out_name(learn.name) == test.name
    (run,) = ub.train(VAE(), learn, steps=60, learning_rate=1e-2, latents=4, net="vitae_mlp", quiet=True)
    found = evaluate_run(run, learn, test, QUICK)
    assert set(found) == {"bounds", "separation", "upright"}
    assert {key.split(".")[0] for key in found["separation"]} == {"score", "digit", "turn", "right", "down"}
    assert 0.9 < found["upright"]["accuracy"] <= 1
    rows = QUICK.choose_rows(test)
    factors, places = QUICK.split_factors(test, rows)
    assert list(factors) == ["digit"]
    np.testing.assert_array_equal(places["turn"], test.moves[rows, 0].numpy())


def test_data_without_perspective_have_bounds_only() -> None:
    faces = Labelled(
        "faces", ["smile"], [2], torch.zeros(120, 1, 12, 12, dtype=torch.uint8), torch.arange(120)[:, None] % 2
    )
    (run,) = ub.train(VAE(), faces, steps=1, latents=4, net="vitae_mlp", quiet=True)
    assert set(evaluate_run(run, faces, faces, AppearanceSettings(examples=100, samples=1))) == {"bounds"}


def test_a_folder_without_runs_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No runs in"):
        appearance_table(tmp_path, quiet=True)
