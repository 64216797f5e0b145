"""Pictures of two latents that change together: the choice of latents, their values, and the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import unbraid as ub
from support.training import quick_train
from unbraid.cli.dispatch import main
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import AE, PCL, PMP, BetaVAE, DiffusionVAE, Method
from unbraid.pictures.examples import middle_example
from unbraid.pictures.images import LABEL, MARGIN
from unbraid.pictures.pair import best_and_worst_runs, decode_pair, informative_controls, traverse_pair


def quick_run(method: Method, data: FactorData, **settings: Any) -> ub.Run:
    return ub.train(method, data, steps=1, quiet=True, **{"latents": 4, "net": "mlp", **settings})[0]


def write_scored_runs(out: Path, method: Method, scores: list[float]) -> None:
    """Write untrained runs on sprites. There is one seed per score, and the score is stored as MIG."""
    ub.train(method, "sprites", seeds=range(len(scores)), steps=0, latents=3, net="mlp", out=out, add=True, quiet=True)
    runs = [run for run in ub.load_runs(out) if type(run.spec.method) is type(method)]
    for run in runs:
        assert run.path is not None
        record = {"metric": "mig", "codes": "mean", "values": {"discrete_mig": scores[run.spec.seed]}}
        (run.path / "scores.jsonl").write_text(json.dumps(record) + "\n")


class KnownCodes(nn.Module):
    """An encoder whose latents are given functions of the true factors.

    Latent 0 is the last factor, latent 1 is half of the last factor, latent 2 is the third factor, and latent 3 is
    noise.
    """

    def __init__(self, data: FactorData) -> None:
        super().__init__()
        self.data = data
        examples = data.batch(torch.arange(len(data))).flatten(1)
        self.index = {row.numpy().tobytes(): i for i, row in enumerate(examples)}

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.tensor([self.index[row.numpy().tobytes()] for row in x.flatten(1)])
        values = self.data.factors(rows).float()
        noise = torch.sin(1e3 * torch.arange(len(rows)).float())
        codes = torch.stack([values[:, -1], values[:, -1] // 2, values[:, 2], noise], 1)
        return torch.cat([codes, 0 * codes], 1)


def test_every_point_of_the_grid_by_hand(sprites: FactorData) -> None:
    """In row i and column j, the first latent is at position j, and the second latent is at position i."""
    run = quick_run(BetaVAE(), sprites)
    grid = decode_pair(run, sprites, 7, (2, 0), 1.5, 4)
    own, positions = run.posterior(sprites.batch(torch.tensor([7]))).mean[0], torch.linspace(-1.5, 1.5, 4)
    assert grid.names == ("latent 2", "latent 0")
    assert grid.labels()[0] == "latent 0\n-1.50"
    for i in range(4):
        for j in range(4):
            z = own.clone()
            z[2], z[0] = positions[j], positions[i]
            torch.testing.assert_close(grid.decoded[i, j], run.decode(z[None])[0].cpu())
    torch.testing.assert_close(grid.reconstruction, run.decode(own[None])[0].cpu())


def test_factors_select_the_most_informative_latents(sprites: FactorData) -> None:
    run = quick_run(BetaVAE(), sprites)
    run.net.encoder = KnownCodes(sprites)
    names = sprites.names
    assert informative_controls(run, sprites, 4, (names[2], names[-1])) == (2, 0)
    assert informative_controls(run, sprites, 4, (names[-1], names[2])) == (0, 2)
    with pytest.raises(UserError, match="Unknown factor of sprites 'colour'"):
        informative_controls(run, sprites, 4, ("colour", names[0]))
    with pytest.raises(UserError, match="by index"):
        informative_controls(run, sprites, 3, (names[2], names[-1]))


def test_the_same_factor_twice_selects_two_latents(sprites: FactorData) -> None:
    run = quick_run(BetaVAE(), sprites)
    run.net.encoder = KnownCodes(sprites)
    first, second = informative_controls(run, sprites, 4, (sprites.names[-1], sprites.names[-1]))
    assert {first, second} == {0, 1}


@pytest.mark.parametrize("method", [AE(), PMP(subspaces=3), DiffusionVAE(), DiffusionVAE(space="flat_torus")], ids=str)
def test_methods_with_other_controls(method: Method, sprites: FactorData, tmp_path: Path) -> None:
    """The picture shows the example, its reconstruction and a square of tiles, also for controls with bounds."""
    path = traverse_pair(quick_run(method, sprites), (0, 1), sprites, columns=3, span=9.0, out=tmp_path)
    with Image.open(path) as picture:
        assert picture.size == (LABEL + 3 * (64 + MARGIN) + MARGIN, 4 * (64 + MARGIN) + MARGIN)
        assert np.ptp(np.asarray(picture)[:, LABEL:]) > 0


def test_labels_name_the_chosen_factors(sprites: FactorData) -> None:
    run = quick_run(PMP(subspaces=3), sprites)
    pair = (sprites.names[0], sprites.names[1])
    grid = decode_pair(run, sprites, middle_example(sprites), pair, 2.0, 3)
    assert grid.names[0].startswith("subspace ")
    assert grid.names[0].endswith(f"({pair[0]})")
    assert grid.decoded.shape[:2] == (3, 3)


@pytest.mark.parametrize(
    ("pair", "options", "message"),
    [
        ((0, 0), {}, "two different latents, 0 to 3"),
        ((0, 4), {}, "two different latents, 0 to 3"),
        ((0, "x"), {}, "two different latents"),
        ((0, 1), {"columns": 1}, "at least 2 columns"),
        ((0, 1), {"example": 10**9}, "index"),
    ],
)
def test_invalid_arguments_raise(
    pair: Any, options: dict[str, Any], message: str, sprites: FactorData, tmp_path: Path
) -> None:
    with pytest.raises((UserError, ValueError, IndexError), match=message):
        traverse_pair(quick_run(BetaVAE(), sprites), pair, sprites, out=tmp_path, **options)


def test_runs_without_a_decoder_or_folder_raise(sprites: FactorData) -> None:
    with pytest.raises(UserError, match="needs a decoder"):
        traverse_pair(quick_run(PCL(), sprites), (0, 1), sprites)
    with pytest.raises(UserError, match="Pass the folder as out="):
        traverse_pair(quick_run(BetaVAE(), sprites), (0, 1), sprites)


def test_best_and_worst_runs(tmp_path: Path) -> None:
    write_scored_runs(tmp_path, BetaVAE(), [0.2, 0.4, 0.1])
    write_scored_runs(tmp_path, AE(), [0.3])
    extremes = [(end, value, run.spec.seed) for end, value, run in best_and_worst_runs(ub.load_runs(tmp_path), "mig")]
    assert sorted(extremes) == [("best", 0.3, 0), ("best", 0.4, 1), ("worst", 0.1, 2)]
    with pytest.raises(UserError, match=r"No run has a score dci\.disentanglement.*--metrics dci"):
        best_and_worst_runs(ub.load_runs(tmp_path), "dci")
    with pytest.raises(UserError, match="Did you mean 'mig'"):
        best_and_worst_runs(ub.load_runs(tmp_path), "migg")


def test_runs_with_too_few_active_latents_are_left_out(tmp_path: Path) -> None:
    def best_and_worst_with_pruned(seeds: set[int]) -> list[int]:
        for run in ub.load_runs(tmp_path):
            assert run.path is not None
            values = {"units": 4 - (run.spec.seed in seeds), "factors": 4}
            with (run.path / "scores.jsonl").open("a") as file:
                file.write(json.dumps({"metric": "active", "codes": "mean", "values": values}) + "\n")
        return [run.spec.seed for _, _, run in best_and_worst_runs(ub.load_runs(tmp_path), "mig")]

    write_scored_runs(tmp_path, BetaVAE(), [0.2, 0.4, 0.1, 0.3])
    assert best_and_worst_with_pruned({1}) == [3, 2]
    assert best_and_worst_with_pruned({0, 1, 2, 3}) == [1, 2]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_scored_runs(tmp_path / "runs", BetaVAE(), [0.2, 0.4, 0.1])
    command = ["traverse", str(tmp_path / "runs"), "--pair", "x,y", "--extremes", "mig", "--columns", "2"]
    assert main([*command, "--out", str(tmp_path / "pictures")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["best mig 0.400", "worst mig 0.100"]
    assert len(list((tmp_path / "pictures").glob("*/pair.png"))) == 2
    assert main(["traverse", str(tmp_path / "runs"), "--pair", "0"]) == 2
    assert "two latents, such as 0,1" in capsys.readouterr().err
    quick_train(tmp_path / "toy")
    assert main(["traverse", str(tmp_path / "toy"), "--pair", "0,1"]) == 2
    assert "images or meshes" in capsys.readouterr().err


def test_several_best_and_worst_runs(tmp_path: Path) -> None:
    """Best runs come first, then the worst, beginning with the worst. No run is both."""
    write_scored_runs(tmp_path, BetaVAE(), [0.3, 0.5, 0.1, 0.4, 0.2])
    runs = ub.load_runs(tmp_path)
    found = [(end, run.spec.seed) for end, _, run in best_and_worst_runs(runs, "mig", 2)]
    assert found == [("best", 1), ("best", 3), ("worst", 2), ("worst", 4)]
    found = [(end, run.spec.seed) for end, _, run in best_and_worst_runs(runs, "mig", 9)]
    assert [end for end, _ in found] == ["best", "best", "worst", "worst", "worst"]
    assert len(dict(map(reversed, found))) == 5


class Negated(nn.Module):
    """An encoder whose latents are the negative latents of another."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        mean, logvar = self.encoder(x).chunk(2, 1)
        return torch.cat([-mean, logvar], 1)


@pytest.mark.parametrize("negated", [False, True])
def test_aligned_latents_rise_with_their_factors(negated: bool, sprites: FactorData) -> None:
    """Latents that fall as their factor rises are flipped, and only those."""
    run = quick_run(BetaVAE(), sprites)
    encoder = KnownCodes(sprites)
    run.net.encoder = Negated(encoder) if negated else encoder
    factors = (sprites.names[-1], sprites.names[2])
    plain, aligned = (decode_pair(run, sprites, 5, factors, 2.0, 5, align=align) for align in (False, True))
    expected = plain.decoded.flip(0, 1) if negated else plain.decoded
    torch.testing.assert_close(aligned.decoded, expected)
    assert aligned.positions.tolist() == sorted(plain.positions.tolist(), reverse=negated)
    torch.testing.assert_close(aligned.reconstruction, plain.reconstruction)


def test_sheet_of_extremes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two best runs are above two worst runs. The flags that a sheet needs are checked."""
    write_scored_runs(tmp_path, BetaVAE(), [0.3, 0.5, 0.1, 0.4, 0.2])
    out = tmp_path / "sheet.png"
    line = ["traverse", str(tmp_path), "--sheet", str(out), "--columns", "3"]
    assert main([*line, "--extremes", "mig", "--pair", "x,y", "--count", "2"]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    with Image.open(out) as picture:
        wide = picture.width
    assert main([*line, "--extremes", "mig", "--pair", "x,y"]) == 0
    with Image.open(out) as picture:
        assert picture.width < wide
        assert picture.height > picture.width
    for flags in (["--pair", "x,y"], ["--extremes", "mig", "--pair", "0,1"]):
        assert main([*line, *flags]) == 2
        assert "--sheet with --pair needs --extremes" in capsys.readouterr().err
