"""Sheets of several runs: samples from the prior, and reconstructions."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import unbraid as ub
from support.command_line import Capture, unbraid
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import AE, PMP, VAE, BetaVAE, DiffusionVAE
from unbraid.noise import Noise
from unbraid.pictures import sheets
from unbraid.pictures.comparison import GAP
from unbraid.pictures.images import LABEL, MARGIN, label_size, labelled_grid
from unbraid.pictures.sheets import (
    draw_reconstructions,
    draw_samples,
    draw_traversals,
    one_run_per_setting,
    row_labels,
)
from unbraid.runs.prior import prior_latents
from unbraid.runs.run import Run
from unbraid.spaces import SPACES

SETTINGS = {"steps": 2, "batch": 4, "latents": 4, "net": "mlp", "quiet": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a beta-VAE at two strengths and an autoencoder, each with two seeds."""
    out = tmp_path_factory.mktemp("runs")
    ub.train([BetaVAE(beta=1.0), BetaVAE(beta=4.0), AE()], "sprites", seeds=(0, 1), out=out, **SETTINGS)
    return out


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[Run]:
    return [run for run in ub.load_runs(folder) if isinstance(run.spec.method, BetaVAE)]


def tile(picture: Image.Image, row: int, column: int, side: int) -> np.ndarray:
    """Return the grey tile of a grid at a position, in [0, 1]."""
    left, top = LABEL + column * (side + MARGIN), MARGIN + row * (side + MARGIN)
    pixels = np.asarray(picture.crop((left, top, left + side, top + side)).convert("L"))
    return pixels / 255


def test_reconstructions_are_those_of_each_run(runs: list[Run], sprites: FactorData, tmp_path: Path) -> None:
    """The first row has the examples, and each other row what its run decodes."""
    path = draw_reconstructions(runs, tmp_path / "sheet.png", examples=3)
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    side = (picture.width - LABEL - MARGIN) // 3 - MARGIN
    index = torch.linspace(0, len(sprites) - 1, 5).long()[1:-1]
    scale = side // sprites.shape[1]
    shown = [sprites.batch(index), *(run.decode(run.posterior(sprites.batch(index)).mean) for run in runs)]
    assert (picture.height - MARGIN) // (side + MARGIN) == len(shown) == 5
    for row, images in enumerate(shown):
        for column, image in enumerate(images):
            found = tile(picture, row, column, side)[::scale, ::scale]
            np.testing.assert_allclose(found, image[0].numpy(), atol=1 / 255)


def test_samples_are_decoded_from_the_prior(runs: list[Run], tmp_path: Path) -> None:
    """Standard normal latents are decoded, the same for runs with equally many latents, and depend on the seed."""
    z = prior_latents(runs[0], 20_000)
    assert z.shape == (20_000, 4)
    assert torch.allclose(z.mean(0), torch.zeros(4), atol=0.05)
    assert torch.allclose(z.T.cov(), torch.eye(4), atol=0.05)
    assert torch.equal(prior_latents(runs[1], 5), prior_latents(runs[0], 5))
    assert torch.equal(runs[0].sample(3, seed=1), runs[0].decode(prior_latents(runs[0], 3, seed=1)))
    assert not torch.equal(prior_latents(runs[0], 5, seed=1), prior_latents(runs[0], 5))
    files = [draw_samples(runs[:2], tmp_path / f"{i}.png", count=9, seed=seed) for i, seed in enumerate((0, 0, 1))]
    first, again, other = (path.read_bytes() for path in files)
    assert first == again != other


def test_sheet_of_traversals_has_the_picture_of_each_run(runs: list[Run], tmp_path: Path) -> None:
    """Panels are placed in rows. Below its title, each has the pixels of the picture that `traverse` writes."""
    path = draw_traversals(runs[:3], tmp_path / "sheet.png", columns=3, titles=["a", "b", "c"])
    alone = [ub.traverse(run, "sprites", columns=3, out=tmp_path).image for run in runs[:3]]
    width, height = alone[0].size
    with Image.open(path) as sheet:
        assert sheet.width == 2 * width + GAP
        top = (sheet.height - GAP) // 2 - height
        places = [(0, top), (width + GAP, top), (0, 2 * top + height + GAP)]
        for picture, (left, up) in zip(alone, places, strict=True):
            found = sheet.convert("RGB").crop((left, up, left + width, up + height))
            assert found.tobytes() == picture.convert("RGB").tobytes()
    with pytest.raises(UserError, match="at least 2 columns"):
        draw_traversals(runs, tmp_path / "none.png", columns=1)


def test_traverse_draws_one_run_per_setting_in_a_sheet(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "sheet.png"
    assert unbraid("traverse", str(folder), "--sheet", str(out), "--columns", "2") == 0
    assert capsys.readouterr().out.strip() == str(out)
    width = LABEL + 2 * (64 + MARGIN) + MARGIN
    with Image.open(out) as picture:
        assert picture.width == 2 * width + GAP  # of six runs, three settings are drawn, in rows of two
    assert not list(folder.glob("*/traversal.png"))


def test_prior_of_a_curved_space_is_uniform_on_it() -> None:
    """Points lie on the space. On a sphere they have no preferred direction."""
    (run,) = ub.train(DiffusionVAE(space="sphere"), "sprites", **{**SETTINGS, "latents": 3})
    z = prior_latents(run, 4000)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(4000))
    assert torch.allclose(z.T.cov(), torch.eye(3) / 3, atol=0.03)


def test_points_on_the_ring_torus_are_uniform() -> None:
    """The outer half of the tube has more area: the mean cosine around the tube is a / (2 c)."""
    torus = SPACES["torus"](3)
    z = torus.uniform(40_000, Noise(torch.tensor(5)))
    torch.testing.assert_close(torus.project(z), z, rtol=0, atol=1e-5)
    ring, tube = torus.angles(z).unbind(1)
    assert float(tube.cos().mean()) == pytest.approx(torus.a / (2 * torus.c), abs=0.02)
    assert abs(float(ring.cos().mean())) < 0.02
    assert float(ring.abs().mean()) == pytest.approx(math.pi / 2, abs=0.03)


@pytest.mark.parametrize("method", [AE(), PMP(subspaces=2)])
def test_methods_without_a_prior_have_no_samples(method: ub.methods.Method, tmp_path: Path) -> None:
    (run,) = ub.train(method, "sprites", **SETTINGS)
    with pytest.raises(UserError, match="a method with a prior"):
        draw_samples([run], tmp_path / "samples.png")
    assert not list(tmp_path.iterdir())


def test_labels_distinguish_runs(runs: list[Run]) -> None:
    assert row_labels(runs) == [f"beta_vae\nbeta={beta}\nseed={seed}" for beta in (1, 4) for seed in (0, 1)]
    longer = ub.train(VAE(), "sprites", **SETTINGS)[0], ub.train(VAE(), "sprites", **{**SETTINGS, "steps": 3})[0]
    assert row_labels(longer) == [f"vae\n{run.id}" for run in longer]
    assert [run.spec.seed for run in one_run_per_setting(runs[::-1])] == [0, 0]


def test_sheets_of_nothing_and_of_several_datasets_are_rejected(runs: list[Run], tmp_path: Path) -> None:
    (other,) = ub.train(VAE(), "sprites?noise=0.1", **SETTINGS)
    for draw in (draw_samples, draw_reconstructions):
        with pytest.raises(UserError, match="at least one trained run"):
            draw([], tmp_path / "sheet.png")
    with pytest.raises(UserError, match="runs on one dataset"):
        draw_reconstructions([runs[0], other], tmp_path / "sheet.png")
    draw_reconstructions([runs[0], other], tmp_path / "sheet.png", data="sprites", examples=2, seed=0)


def test_commands_write_sheets(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    """Of each setting the lowest seed is drawn. Methods without a prior have no samples, and the command says so."""
    assert unbraid("reconstruct", str(folder), "--examples", "2") == 0
    with Image.open(capsys.readouterr().out.strip()) as picture:
        side = (picture.width - LABEL - MARGIN) // 2 - MARGIN
        assert (picture.height - MARGIN) // (side + MARGIN) == 1 + 3
    out = tmp_path / "samples.png"
    assert unbraid("samples", str(folder), "--count", "4", "--out", str(out), "--all") == 0
    captured = capsys.readouterr()
    assert captured.out.strip() == str(out)
    assert "left out: 2 run(s) of methods without a prior" in captured.err
    assert out.exists()


def test_the_prior_of_a_curved_method_lies_on_its_space() -> None:
    (run,) = ub.train("s_vae", data="toy", steps=2, latents=4, net="mlp", quiet=True)
    radii = prior_latents(run, 20).norm(dim=1)
    assert torch.allclose(radii, torch.ones(20), atol=1e-5)


def test_titles_have_the_settings_in_which_runs_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [ub.train("vae", data="sprites", latents=n, steps=1, quiet=True)[0] for n in (2, 3)]
    titles: list[str] = []
    monkeypatch.setattr(sheets, "add_title", lambda grid, title: titles.append(title) or grid)
    sheets.draw_samples(runs, tmp_path / "samples.png", count=1)
    sheets.draw_traversals(runs, tmp_path / "traversals.png", columns=2)
    assert titles == ["vae latents=2", "vae latents=3"] * 2


def test_long_labels_and_low_tiles_are_drawn_completely() -> None:
    black = torch.zeros(1, 8, 128)
    label = "a long name of a method\nwith a setting=0.123\nseed=0"
    picture = np.asarray(labelled_grid([(label, [black, black]), (label, [black])], 1).convert("L"))
    width, height = label_size(label)
    left = width + 8
    assert picture.shape == (2 * (height + MARGIN) + MARGIN, left + 2 * (128 + MARGIN) + MARGIN)
    assert (picture[:, left - 4 : left] == 255).all()  # no letter is covered by the tiles
    assert (picture[height + MARGIN : height + 2 * MARGIN] == 255).all()  # nor by the next row
    assert labelled_grid([("", [black])], 1).width == 128 + 3 * MARGIN
