"""Pictures of datasets, and the command that draws them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import unbraid as ub
from unbraid.cli.dispatch import main
from unbraid.data import FactorData, Labelled
from unbraid.pictures.dataset import draw_dataset, factor_rows


def test_one_row_per_factor(sprites: FactorData, tmp_path: Path) -> None:
    rows = factor_rows(sprites)
    assert [label.split("\n")[0] for label, _ in rows] == list(sprites.names)
    assert [len(tiles) for _, tiles in rows] == [3, 3, 8, 10, 8]
    for _, tiles in rows:
        assert len({tile.numpy().tobytes() for tile in tiles}) == len(tiles)
    with Image.open(draw_dataset(sprites, tmp_path / "new" / "s.png")) as picture:
        assert picture.size[1] == 5 * (64 + 2) + 2
        assert len(np.unique(np.asarray(picture))) > 2


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "show", "sprites"]) == 0
    assert (tmp_path / "sprites.png").stat().st_size > 1000
    assert "sprites: 9,216 examples" in capsys.readouterr().out
    assert main(["data", "show", "toy"]) == 2
    assert "A picture needs images or meshes. toy has vectors of 16" in capsys.readouterr().err
    assert main(["data", "show", "spritess"]) == 2
    assert "Did you mean 'sprites'?" in capsys.readouterr().err


def test_data_without_a_grid_show_examples_of_labels(tmp_path: Path) -> None:
    images = torch.arange(12 * 64, dtype=torch.uint8).view(12, 1, 8, 8)
    labels = torch.tensor([[i % 3, i // 6] for i in range(12)])
    data = Labelled("own", ("kind", "half"), (3, 2), images, labels)
    with Image.open(draw_dataset(data, tmp_path / "own.png")) as picture:
        assert picture.size[1] == 3 * (64 + 2) + 2


def test_folder_of_images_from_training_to_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for i in range(40):
        array = np.zeros((32, 32), np.uint8)
        array[i % 8 * 3 : i % 8 * 3 + 8, i // 8 * 5 : i // 8 * 5 + 8] = 255
        Image.fromarray(array).save(folder / f"y={i % 8}_x={i // 8}.png")
    where, out = f"{folder}?size=32", str(tmp_path / "runs")
    assert main(["train", "vae", "--data", where, "--steps", "3", "--latents", "3", "--out", out, "--quiet"]) == 0
    assert main(["score", out, "--metrics", "mig,unsupervised", "--quiet"]) == 0
    assert "mig" in capsys.readouterr().out
    assert main(["traverse", out, "--columns", "3"]) == 0
    assert list((tmp_path / "runs").glob("*/traversal.png"))


def test_data_without_labels_from_training_to_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 255, (30, 32, 32), dtype=np.uint8))
    where, out = str(tmp_path / "x.npy"), str(tmp_path / "runs")
    command = ["train", "vae", "--data", where, "--steps", "2", "--seeds", "0-1", "--latents", "3", "--out", out]
    assert main([*command, "--quiet"]) == 0
    assert main(["select", out, "--examples", "20", "--quiet"]) == 0
    assert "udr" in capsys.readouterr().out
    assert main(["traverse", out, "--columns", "3"]) == 0
    (row, _) = ub.score(ub.load_runs(out), ["unsupervised"], quiet=True)
    assert "unsupervised.mutual_info_score" in row
    assert main(["score", out, "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "total corr." in printed
    assert "mig" not in printed  # there are no labels to score by
