"""Exported encoders and decoders of every method give the same outputs as the run when other programs load them."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from families import METHOD_FACTS
from support.training import quick_train
from unbraid.cli.dispatch import main
from unbraid.data import FactorData, Labelled
from unbraid.errors import UserError
from unbraid.exporting.export import export
from unbraid.exporting.plain_network import remove_unused_layers
from unbraid.methods import CVITAE, METHODS, UVITAE, BetaVAE, DiffusionVAE, Method
from unbraid.nets.onnx_runner import gather_elements
from unbraid.nets.pointnet import pointnet

GAUSSIAN_OUTPUTS = {"codes", "logvar"}
OUTPUTS = {
    "lsbd_vae": {"codes", "log_t"},
    **{
        name: {"codes"}
        for name in ("ae", "pca", "ica", "ae_ica", "fsq", "tripod", "qlae", "sae", "pcl", "cl_ica", "ice_beem", "pmp")
    },
    "diffusion_vae": {"codes", "log_t"},
    "s_vae": {"codes", "log_kappa"},
    "joint_vae": {"codes", "latents", "probabilities"},
}


def quick_run(method: Method, data: FactorData, **settings: Any) -> ub.Run:
    return ub.train(method, data=data, steps=2, batch=8, quiet=True, **{"latents": 4, "net": "mlp", **settings})[0]


def read_torch(file: Path, x: Tensor) -> list[np.ndarray[Any, Any]]:
    outputs = torch.export.load(file).module()(x)
    return [part.detach().numpy() for part in (outputs if isinstance(outputs, tuple) else [outputs])]


def read_onnx(file: Path, x: Tensor) -> list[np.ndarray[Any, Any]]:
    model = onnx.load(file)
    onnx.checker.check_model(model)
    session = onnx.reference.ReferenceEvaluator(model, new_ops=[gather_elements()])
    return list(session.run(None, {model.graph.input[0].name: x.numpy()}))


def export_and_check(run: ub.Run, data: FactorData, folder: Path, format: str) -> dict[str, Any]:
    """Export a run, load the files without unbraid, and compare their outputs with those of the run.

    The batch size differs from those that `export` uses itself.
    """
    read, ending = (read_torch, "pt2") if format == "torch" else (read_onnx, "onnx")
    facts = export(run, folder, format=format, data=data, quiet=True)
    x = data.batch(torch.arange(5))
    names = list(facts["files"][f"encoder.{ending}"]["outputs"])
    outputs = dict(zip(names, read(folder / f"encoder.{ending}", x), strict=True))
    np.testing.assert_allclose(outputs["codes"], run.encode(x).numpy(), atol=1e-4)
    if "logvar" in outputs:
        np.testing.assert_allclose(outputs["logvar"], run.posterior(x).logvar.numpy(), atol=1e-4)
    assert ((folder / f"decoder.{ending}").exists()) == (run.net.decoder is not None)
    if run.net.decoder is not None:
        z = torch.as_tensor(outputs.get("latents", outputs["codes"]))
        (examples,) = read(folder / f"decoder.{ending}", z)
        np.testing.assert_allclose(examples, run.decode(z).numpy(), atol=1e-4)
    for file, about in facts["files"].items():
        assert about["sha256"] == hashlib.sha256((folder / file).read_bytes()).hexdigest()
        assert about["largest_difference"] < 1e-4
    assert json.loads((folder / f"export.{format}.json").read_text()) == facts
    return facts


@pytest.mark.parametrize("format", ["torch", pytest.param("onnx", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * METHOD_FACTS[n].images) for n in METHODS])
def test_every_method(name: str, format: str, smallest_data: FactorData, tmp_path: Path) -> None:
    run = quick_run(METHOD_FACTS[name].lightly_regularised, smallest_data)
    facts = export_and_check(run, smallest_data, tmp_path, format)
    (encoder, *_) = facts["files"].values()
    assert set(encoder["outputs"]) == OUTPUTS.get(name, GAUSSIAN_OUTPUTS)
    assert encoder["inputs"]["x"]["shape"] == ["n", *smallest_data.shape]


@pytest.mark.parametrize("name", ["beta_vae", "pcl", "pmp", "diffusion_vae"])
def test_onnx_of_each_kind_of_code(name: str, toy: FactorData, tmp_path: Path) -> None:
    facts = export_and_check(quick_run(METHOD_FACTS[name].lightly_regularised, toy), toy, tmp_path, "onnx")
    assert facts["files"]["encoder.onnx"]["outputs"]["codes"]["meaning"].endswith(f"'{METHODS[name]().code_kinds[0]}'")


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_convolutions_and_a_run_trained_in_bfloat16(format: str, sprites: FactorData, tmp_path: Path) -> None:
    run = quick_run(BetaVAE(), sprites, net="locatello", precision="bf16")
    for layer in run.net.modules():
        if hasattr(layer, "reduced"):
            layer.reduced = False  # compare with float32
    facts = export_and_check(run, sprites, tmp_path, format)
    assert facts["spec"]["precision"] == "bf16"
    assert facts["precision"] == "float32"
    if format == "onnx":
        kinds = {node.op_type for node in onnx.load(tmp_path / "decoder.onnx").graph.node}
        assert "ConvTranspose" in kinds
        assert not {"Scan", "Loop", "If"} & kinds


CURVED = [("flat_torus", 4), ("torus", 3), ("projective", 4), ("rotations", 9)]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["torch", "onnx"])
@pytest.mark.parametrize(("space", "latents"), CURVED)
def test_every_space(space: Any, latents: int, format: str, toy: FactorData, tmp_path: Path) -> None:
    run = quick_run(DiffusionVAE(space=space), toy, latents=latents)
    (encoder, _) = export_and_check(run, toy, tmp_path, format)["files"].values()
    assert ("latents" in encoder["outputs"]) == (space == "projective")


@pytest.mark.slow
@pytest.mark.parametrize("format", ["torch", "onnx"])
@pytest.mark.parametrize("transform", ["affine", "affine_decomposed", "affine_diffeomorphic", "cpab"])
@pytest.mark.parametrize("kind", [UVITAE, CVITAE])
def test_every_transformation(
    kind: type[UVITAE], transform: Any, format: str, glyphs: FactorData, tmp_path: Path
) -> None:
    export_and_check(quick_run(kind(transform=transform, flow_steps=5), glyphs), glyphs, tmp_path, format)


def test_cpab_is_exported_without_compiled_loops(glyphs: FactorData, tmp_path: Path) -> None:
    export_and_check(quick_run(UVITAE(transform="cpab", nx=1, ny=1, flow_steps=1), glyphs), glyphs, tmp_path, "torch")


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_pointnet(format: str, tmp_path: Path) -> None:
    """The PointNet processes few examples at a time. Its export accepts any number of examples."""
    table = torch.rand(20, 3 * 1100)
    data = Labelled("points", (), (), table, torch.zeros(20, 0, dtype=torch.int64))
    export_and_check(quick_run(BetaVAE(), data, net=pointnet), data, tmp_path, format)


def test_unused_layers_are_left_out(toy: FactorData, tmp_path: Path) -> None:
    run = quick_run(METHODS["factor_vae"](), toy)
    assert any(name.startswith("critic") for name, _ in run.net.named_parameters())
    export(run, tmp_path, format="torch", data=toy, quiet=True)
    exported = torch.export.load(tmp_path / "encoder.pt2").state_dict
    assert sum(value.numel() for value in exported.values()) == sum(p.numel() for p in run.net.encoder.parameters())


class WeightsOfUncalledChild(nn.Module):
    """A module that uses the weights of a child without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3))
        self.odd = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.odd["a"](self.inner(x)) + self.odd["b"].weight.sum()
        return outputs


def test_uncalled_layers_whose_weights_are_used_are_kept() -> None:
    module, x = WeightsOfUncalledChild(), torch.rand(2, 3)
    assert remove_unused_layers(module, x)(x).equal(module(x))


class ShiftedWhenExported(nn.Linear):
    """A layer whose exported version returns different values."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0.01 * torch.compiler.is_compiling()


class Branching(nn.Linear):
    """A layer with a branch that depends on the data."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


def linear_pair(layer: type[nn.Linear]) -> Any:
    """Return a builder of a linear encoder with this layer and a linear decoder."""
    return lambda shape, latents: (nn.Sequential(layer(*shape, 2 * latents)), nn.Sequential(nn.Linear(latents, *shape)))


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_a_file_that_returns_different_values_raises(format: str, toy: FactorData, tmp_path: Path) -> None:
    run = quick_run(BetaVAE(), toy, net=linear_pair(ShiftedWhenExported))
    with pytest.raises(UserError, match=r"encoder\.\w+ must return the same codes.*Got a difference of 0\.01"):
        export(run, tmp_path / "new", format=format, data=toy, quiet=True)
    assert not (tmp_path / "new").exists()


def test_a_network_that_cannot_be_exported_raises(toy: FactorData, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written as a graph"):
        export(quick_run(BetaVAE(), toy, net=linear_pair(Branching)), tmp_path / "new", data=toy, quiet=True)
    assert not (tmp_path / "new").exists()


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run, other) = quick_train(tmp_path / "runs", seeds=[0, 1])
    assert main(["export", str(run.path), "--format", "torch", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "decoder.pt2  z (n, 3) -> examples (n, 16)  largest difference" in printed
    assert "encoder.pt2  x (n, 16) -> codes (n, 3), logvar (n, 3)  largest difference" in printed
    out = str(run.path / "exported") if run.path else ""
    assert main(["export", str(other.path), "--out", out, "--quiet"]) == 2
    assert f"contains the export of run {run.id}" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "runs")]) == 2
    assert "Got 2 runs instead" in capsys.readouterr().err
    assert main(["export", str(run.path), "--format", "onxx"]) == 2
    assert "onnx" in capsys.readouterr().err


def test_missing_packages_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    (run,) = quick_train(tmp_path / "runs")
    assert main(["export", str(run.path)]) == 2
    assert 'onnxscript. Install them with pip install "unbraid[export]"' in capsys.readouterr().err
    with pytest.raises(ValueError, match="Did you mean 'onnx'"):
        export(run, tmp_path / "x", format="onxn")
    assert export(run, tmp_path / "x", format="torch", quiet=True)["kind"] == "torch"
