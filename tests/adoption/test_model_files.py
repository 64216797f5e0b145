"""TorchScript, torch.export and ONNX files and Python code become runs that compute the same as the model."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from support.damage import count_user_errors, damaged_copies
from support.foreign_models import LATENTS, SIDE
from unbraid.adoption.files import read_torchscript
from unbraid.errors import UserError

SHAPE = (1, SIDE, SIDE)
CODE = """
import torch
from torch import nn
from support.foreign_models import Branching, plain_pair


def pair():
    torch.manual_seed(7)
    return plain_pair()


def branching():
    torch.manual_seed(8)
    return Branching()


def needs_arguments(size):
    return size
"""


class ScriptVAE(nn.Module):
    """A VAE that TorchScript accepts, with the batch size in its shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout())
        self.layer, self.back = nn.Linear(4 * 36, 2 * LATENTS), nn.Linear(LATENTS, 4 * 36)
        self.up = nn.ConvTranspose2d(4, 1, 4, 2, 1)

    @torch.jit.export
    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.layer(self.features(x).view(x.size(0), -1))
        return h[:, :3], h[:, 3:]

    @torch.jit.export
    def decode(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.up(self.back(z).view(z.size(0) * 1, 4, 6, 6)))

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x)[0])


class Part(nn.Module):
    """The encoder or the decoder of a model as a module."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x: Tensor) -> Any:
        return getattr(self.model, self.name)(x)


@pytest.fixture(scope="module")
def model() -> ScriptVAE:
    torch.manual_seed(3)
    model = ScriptVAE().eval()
    model.features[1].running_mean.uniform_()  # type: ignore[operator, union-attr]
    return model


@pytest.fixture(scope="module")
def images() -> Any:
    return ub.data.from_arrays(torch.rand(40, *SHAPE, generator=torch.Generator().manual_seed(0)).numpy(), name="noise")


def examples(part: str) -> Tensor:
    return torch.rand(3, *SHAPE) if part == "encode" else torch.rand(3, LATENTS)


def save_scripted(model: nn.Module, folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(model), folder / "model.pt")
    return folder / "model.pt"


def save_traced(model: nn.Module, folder: Path) -> Any:
    for part in ("encode", "decode"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.save(torch.jit.trace(Part(model, part).eval(), examples(part)), folder / f"{part}.pt")
    return folder / "encode.pt", folder / "decode.pt"


def save_exported(model: nn.Module, folder: Path) -> Any:
    for part in ("encode", "decode"):
        sizes = ({0: torch.export.Dim("n", min=1)},)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(Part(model, part).eval(), (examples(part),), dynamic_shapes=sizes)
            torch.export.save(program, folder / f"{part}.pt2")
    return folder / "encode.pt2", folder / "decode.pt2"


def save_onnx(dynamo: bool, external: bool = False) -> Callable[[nn.Module, Path], Any]:
    def save(model: nn.Module, folder: Path) -> Any:
        for part in ("encode", "decode"):
            sizes: dict[str, Any] = {"dynamic_axes": {"x": {0: "n"}}}
            if dynamo:
                sizes = {"dynamic_shapes": ({0: torch.export.Dim("n", min=1)},), "external_data": external}
            names = ["mean", "logvar"] if part == "encode" else ["examples"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    Part(model, part).eval(), (examples(part),), folder / f"{part}.onnx", dynamo=dynamo,
                    input_names=["x"], output_names=names, verbose=False, **sizes,
                )  # fmt: skip
        return folder / "encode.onnx", folder / "decode.onnx"

    return save


FORMATS: dict[str, Callable[[nn.Module, Path], Any]] = {
    "scripted": save_scripted, "traced": save_traced, "exported": save_exported,
    "onnx": save_onnx(True), "onnx with two files": save_onnx(True, external=True),
    "onnx of TorchScript": save_onnx(False),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_the_run_of_a_file_computes_the_same_as_the_model(
    name: str, model: ScriptVAE, images: Any, tmp_path: Path
) -> None:
    files = FORMATS[name](model, tmp_path)
    if not name.startswith("onnx"):
        with pytest.raises(UserError, match=r"contains a program.*pass --trust \(trust=True\)"):
            ub.adopt(files, images, "mine", out=tmp_path / "runs")
        assert not (tmp_path / "runs").exists()
    run = ub.adopt(files, images, "mine", out=tmp_path / "runs", trust=not name.startswith("onnx"))
    for file in [file for file in tmp_path.iterdir() if file.is_file()]:
        file.unlink()  # the run does not need the files any more
    loaded = ub.load_run(tmp_path / "runs", images)  # and no consent
    x = images.batch(torch.arange(7))
    with torch.no_grad():
        mean, logvar = model.encode(x)
        for one in (run, loaded):
            q = one.posterior(x)
            torch.testing.assert_close(q.mean, mean, atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(q.logvar, logvar, atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(one.decode(mean[:1]), model.decode(mean[:1]), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_an_exported_run_can_be_adopted_again(images: Any, tmp_path: Path) -> None:
    (run,) = ub.train(ub.methods.BetaVAE(), images, steps=2, latents=4, net="mlp", quiet=True)
    ub.export(run, tmp_path, data=images, quiet=True)
    adopted = ub.adopt((tmp_path / "encoder.onnx", tmp_path / "decoder.onnx"), images, "again")
    x = images.batch(torch.arange(7))
    torch.testing.assert_close(adopted.posterior(x).mean, run.posterior(x).mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(adopted.posterior(x).logvar, run.posterior(x).logvar, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(adopted.decode(run.encode(x)), run.decode(run.encode(x)), atol=1e-5, rtol=1e-4)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / f"foreign_code_{tmp_path.name.replace('-', '_')}.py"
    file.write_text(CODE)
    return file


def forget(code: Path) -> None:
    """Let the next part of a test be like another process, which has neither imported nor been given the code."""
    from unbraid.runtime import importing

    sys.modules.pop(code.stem, None)
    for names in (importing._TRUSTED, importing._FILES):
        for name in [name for name in names if code.stem in name]:
            names.discard(name) if isinstance(names, set) else names.pop(name)
    if str(code.parent) in sys.path:
        sys.path.remove(str(code.parent))


def test_code_that_can_be_traced_is_not_needed_any_more(code: Path, images: Any, tmp_path: Path) -> None:
    run = ub.adopt(f"{code}:pair", images, "pair", out=tmp_path / "runs", save_data=True)
    code.unlink()
    forget(code)
    loaded = ub.load_run(tmp_path / "runs")
    assert torch.equal(loaded.decode(torch.ones(2, LATENTS)), run.decode(torch.ones(2, LATENTS)))


def test_code_that_cannot_be_traced_needs_consent(code: Path, images: Any, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"whose code is run.*--trust"):
        run = ub.adopt(f"{code}:branching", images, "branching", out=tmp_path / "runs", save_data=True)
    x = images.batch(torch.arange(5))
    codes = run.encode(x)
    forget(code)
    with pytest.raises(UserError, match=rf"imports the Python module '{code.stem}'.*pass --trust \(trust=True\)"):
        ub.load_runs(tmp_path / "runs")
    assert code.stem not in sys.modules
    code.write_text(CODE.replace("manual_seed(8)", "manual_seed(9)"))  # the stored weights replace others
    assert torch.equal(ub.load_run(tmp_path / "runs", trust=True).encode(x), codes)
    forget(code)
    code.write_text(CODE.replace("return Branching()", "return plain_pair()"))
    with pytest.raises(UserError, match=r"does not fit the stored weights\. The weight \S+ (is|has)"):
        ub.load_run(tmp_path / "runs", trust=True)


def test_damaged_torchscript_raises_only_user_errors(tmp_path: Path) -> None:
    """PyTorch raises errors of several types, for example an IndexError if a name in the archive is changed."""
    file = tmp_path / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(nn.Sequential(nn.Linear(3, 2), nn.ReLU())), file)
    content = file.read_bytes()

    def read(damaged: bytes) -> None:
        file.write_bytes(damaged)
        read_torchscript(file)

    renamed = [content.replace(name, name[::-1]) for name in (b"code", b"constants.pkl", b"__torch__", b"training")]
    assert count_user_errors(read, iter(renamed)) == len(renamed)
    assert count_user_errors(read, damaged_copies(content, 200)) > 50


def test_invalid_files_are_refused(code: Path, images: Any, tmp_path: Path) -> None:
    for suffix in (".pt", ".pt2", ".onnx"):
        (tmp_path / f"bad{suffix}").write_bytes(b"no model")
    weights = io.BytesIO()
    torch.save(nn.Linear(2, 2).state_dict(), weights)
    (tmp_path / "weights.pt").write_bytes(weights.getvalue())
    cases = {
        f"{tmp_path}/bad.pt": "must be a complete TorchScript file",
        f"{tmp_path}/weights.pt": "contains weights only",
        f"{tmp_path}/bad.pt2": "torch.export.save",
        f"{tmp_path}/bad.onnx": "must be an ONNX file",
        f"{tmp_path}/none.onnx": "There is no file",
        f"{tmp_path}/model.ckpt": r"must end in .pt, .*file.py:function",
        f"{code}:needs_arguments": "without arguments",
        f"{code}:nothing": "must be importable",
        f"{tmp_path}/none.py:pair": "existing file of Python code",
    }
    for file, message in cases.items():
        with pytest.raises(UserError, match=message):
            ub.adopt(file, images, "mine", trust=True)
    with pytest.raises(UserError, match="must be \\(encoder, decoder\\)"):
        ub.adopt([code] * 3, images, "mine")


@pytest.mark.parametrize("names", [None, ["mu", "lv"], ["z_mean", "z_log_var"]])
def test_two_outputs_of_an_onnx_file_are_a_pair(names: list[str] | None, images: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnx")

    class TwoOutputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(SIDE**2, 2 * LATENTS)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            mean, logvar = self.layer(x.flatten(1)).chunk(2, 1)
            return mean, logvar

    model, file, x = TwoOutputs().eval(), tmp_path / "encoder.onnx", images.batch(torch.arange(6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes = {"x": {0: "n"}}
        torch.onnx.export(model, (x,), file, dynamo=False, input_names=["x"], output_names=names, dynamic_axes=axes)
    q = ub.adopt(file, images, "two outputs").posterior(x)
    with torch.no_grad():
        torch.testing.assert_close((q.mean, q.logvar), model(x))
