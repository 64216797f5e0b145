"""What a new user meets with data and models of their own: no dead ends, and errors that say what to do."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import unbraid as ub
from support.own import random_pixels
from support.training import quick_train
from unbraid.cli import main
from unbraid.errors import UserError
from unbraid.metrics import METRICS


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[ub.Run]:
    """Two runs on images without labels."""
    folder = tmp_path_factory.mktemp("unlabelled")
    return quick_train(folder / "runs", "vae", data=random_pixels(20, 16, 16), seeds=range(2), steps=1, save_data=True)


def test_metrics_that_need_labels_say_so_and_name_others(runs: list[ub.Run]) -> None:
    message = (
        r"^mig, sap need labels of the factors\. .* has none\. Choose metrics without labels \(unsupervised, .*select"
    )
    with pytest.raises(UserError, match=message):
        ub.score(runs, "mig,unsupervised,sap", quiet=True)


def test_all_metrics_are_those_that_can_be_computed(
    runs: list[ub.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [row, _] = ub.score(runs, "all", quiet=True)
    assert {key.partition(".")[0] for key in row if "." in key} == {"unsupervised", "factorised_support"}
    labelled = quick_train(tmp_path / "runs", "vae", data="toy", steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # metrics that are left out
        [row] = ub.score(labelled, ["all"], quiet=True)
        assert main(["score", str(tmp_path / "runs"), "--metrics", "all", "--no-bounds", "--quiet"]) == 0
    computed = {key.partition(".")[0] for key in row if "." in key}
    assert {"mig", "omes", "factorised_support"} < computed < set(METRICS), "d_lsbd needs a cyclic factor"
    assert "d_lsbd" not in computed
    assert "omes" in capsys.readouterr().out
    page = ub.report(runs, tmp_path / "page.html", metrics="all", best=1, quiet=True).read_text()
    assert "factorised support" in page


@pytest.mark.filterwarnings("ignore:left out")
def test_codes_are_scored_with_all_metrics() -> None:
    factors = ub.data.load("toy").factors(slice(None))
    [row] = ub.score(codes=factors + 0.5, factors=factors, metrics="all", quiet=True)
    assert {"omes", "mig"} < {key.partition(".")[0] for key in row if "." in key}


def test_a_misspelled_folder_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"There is 'photos' in the working directory\.$"):
        ub.data.load("phots")
    with pytest.raises(UserError, match=r"Or pass the path of your own folder or file\.$"):
        ub.data.load("nothing")


def test_photographs_in_other_formats_must_be_converted(tmp_path: Path) -> None:
    (tmp_path / "IMG_1.HEIC").write_bytes(b"")
    with pytest.raises(UserError, match=r"Got 1 other files instead\. Convert photographs .* to \.jpg or \.png first"):
        ub.data.from_folder(tmp_path)


def test_the_folder_of_one_run_is_named(runs: list[ub.Run]) -> None:
    assert runs[0].path is not None
    with pytest.raises(UserError, match=rf"Got 2 runs instead\. Pass the folder of one run, such as {runs[0].path}"):
        ub.load_run(runs[0].path.parent)


def test_traversals_are_not_written_to_a_folder_with_the_name_of_a_picture(
    runs: list[ub.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "t.png"
    with pytest.raises(UserError, match=r"'out' must be a folder.* call \.image\.save\('.*t\.png'\) of the result"):
        ub.traverse(runs[0], out=picture)
    ub.traverse(runs[0]).image.save(picture)
    with Image.open(picture) as image:
        assert image.width > 100
    assert main(["traverse", str(runs[0].path), "--out", str(tmp_path / "u.gif")]) == 2
    assert f"use --sheet {tmp_path / 'u.png'}." in capsys.readouterr().err


class ResidualBlock(nn.Module):
    """Two convolutions with batch normalisation, and a connection around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers = [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.SiLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.layers(x))


def residual_pair() -> tuple[nn.Module, nn.Module]:
    """An encoder and a decoder as in other libraries, for 16x16 pixels."""
    torch.manual_seed(0)
    encoder = [nn.Conv2d(1, 4, 4, 2, 1), ResidualBlock(4), nn.Flatten(), nn.Linear(256, 3)]
    up = [
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.GroupNorm(2, 4),
        ResidualBlock(4),
        nn.Upsample(scale_factor=2),
    ]
    decoder = [nn.Linear(3, 64), nn.Unflatten(1, (4, 4, 4)), ResidualBlock(4), *up, nn.Conv2d(4, 1, 1), nn.Sigmoid()]
    return nn.Sequential(*encoder).eval(), nn.Sequential(*decoder).eval()


@pytest.mark.parametrize("kind", ["onnx", "pt"])
def test_two_files_of_a_residual_network_are_adopted_as_other_libraries_write_them(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("images.npy", random_pixels(20, 16, 16))
    parts = dict(zip(("encoder", "decoder"), residual_pair(), strict=True))
    inputs = {"encoder": torch.rand(3, 1, 16, 16), "decoder": torch.rand(3, 3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, part in parts.items():
            if kind == "onnx":  # the default settings, which write a second file with the weights
                sizes = ({0: torch.export.Dim("n", min=1)},)
                torch.onnx.export(part, (inputs[name],), f"{name}.onnx", dynamic_shapes=sizes, verbose=False)
            else:
                torch.jit.trace(part, inputs[name]).save(f"{name}.pt")
    files = [f"encoder.{kind}", f"decoder.{kind}", *(["--trust"] if kind == "pt" else [])]
    assert main(["adopt", *files, "--data", "images.npy", "--name", "mine", "--out", "runs"]) == 0
    run = ub.load_run("runs")
    x = torch.rand(5, 1, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(run.encode(x), parts["encoder"](x), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(
            run.decode(inputs["decoder"]), parts["decoder"](inputs["decoder"]), atol=1e-4, rtol=0
        )
    page = ub.report("runs", quiet=True).read_text()
    assert "data-weights" in page, "the sliders run the decoder"
    assert main(["adopt", *files, "--data", "sprites", "--name", "other", "--out", "other"]) == 2
    takes = r"takes examples of the shape \(1, 16, 16\)\. Got \(1, 32, 32\)"
    assert re.search(takes if kind == "onnx" else "error instead: RuntimeError: mat1 and mat2", capsys.readouterr().err)
    assert (
        main(["adopt", *files, "--decoder", files[1], "--data", "images.npy", "--name", "mine", "--out", "runs"]) == 2
    )
    assert "There must be one decoder" in capsys.readouterr().err
