"""Two latents moved together: which ones, where they go, and the picture of it."""

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
from support.training import quick
from unbraid.cli.dispatch import main
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import AE, PCL, PMP, BetaVAE, DiffusionVAE, Method
from unbraid.pictures.examples import middle_example
from unbraid.pictures.images import LABEL, MARGIN
from unbraid.pictures.pair import best_and_worst_runs, decode_pair, informative_controls, traverse_pair


def trained(method: Method, data: FactorData, **settings: Any) -> ub.Run:
    return ub.train(method, data, steps=1, quiet=True, **{"latents": 4, "net": "mlp", **settings})[0]


def kept(out: Path, method: Method, scores: list[float]) -> None:
    """Untrained runs on sprites, a seed a score, with a MIG as if it had been made."""
    ub.train(method, "sprites", seeds=range(len(scores)), steps=0, latents=3, net="mlp", out=out, add=True, quiet=True)
    runs = [run for run in ub.load_runs(out) if type(run.spec.method) is type(method)]
    for run in runs:
        assert run.path is not None
        record = {"metric": "mig", "codes": "mean", "values": {"discrete_mig": scores[run.spec.seed]}}
        (run.path / "scores.jsonl").write_text(json.dumps(record) + "\n")


class Planted(nn.Module):
    """Latent 2 is the third factor and latent 0 the last, latent 1 the last but less of it; the rest are noise."""

    def __init__(self, data: FactorData) -> None:
        super().__init__()
        self.data = data
        seen = data.batch(torch.arange(len(data))).flatten(1)
        self.places = {row.numpy().tobytes(): i for i, row in enumerate(seen)}

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.tensor([self.places[row.numpy().tobytes()] for row in x.flatten(1)])
        values = self.data.factors(rows).float()
        noise = torch.sin(1e3 * torch.arange(len(rows)).float())
        codes = torch.stack([values[:, -1], values[:, -1] // 2, values[:, 2], noise], 1)
        return torch.cat([codes, 0 * codes], 1)


def test_every_place_of_the_grid_by_hand(sprites: FactorData) -> None:
    """Row i and column j decode the example's own latents with the second at position i and the first at j."""
    run = trained(BetaVAE(), sprites)
    found, names = decode_pair(run, sprites, 7, (2, 0), 1.5, 4)
    own, way = run.posterior(sprites.batch(torch.tensor([7]))).mean[0], torch.linspace(-1.5, 1.5, 4)
    assert names == ("latent 2", "latent 0")
    assert found.labels[0] == "latent 0\n-1.50"
    for i in range(4):
        for j in range(4):
            z = own.clone()
            z[2], z[0] = way[j], way[i]
            torch.testing.assert_close(found.images[i, j], run.decode(z[None])[0].cpu())
    torch.testing.assert_close(found.reconstruction, run.decode(own[None])[0].cpu())


def test_factors_name_the_latents_that_hold_them(sprites: FactorData) -> None:
    run = trained(BetaVAE(), sprites)
    run.net.encoder = Planted(sprites)
    names = sprites.names
    assert informative_controls(run, sprites, 4, (names[2], names[-1])) == (2, 0)
    assert informative_controls(run, sprites, 4, (names[-1], names[2])) == (0, 2)
    with pytest.raises(UserError, match="Unknown factor of sprites 'colour'"):
        informative_controls(run, sprites, 4, ("colour", names[0]))
    with pytest.raises(UserError, match="by number"):
        informative_controls(run, sprites, 3, (names[2], names[-1]))


def test_a_factor_that_no_latent_holds_alone_takes_two(sprites: FactorData) -> None:
    """The same factor twice: the two latents are different."""
    run = trained(BetaVAE(), sprites)
    run.net.encoder = Planted(sprites)
    first, second = informative_controls(run, sprites, 4, (sprites.names[-1], sprites.names[-1]))
    assert {first, second} == {0, 1}


@pytest.mark.parametrize("method", [AE(), PMP(subspaces=3), DiffusionVAE(), DiffusionVAE(space="flat_torus")], ids=str)
def test_methods_with_knobs_of_their_own(method: Method, sprites: FactorData, tmp_path: Path) -> None:
    """The picture has the example, its reconstruction and a square of tiles; knobs that end are not turned further."""
    path = traverse_pair(trained(method, sprites), (0, 1), sprites, columns=3, span=9.0, out=tmp_path)
    with Image.open(path) as picture:
        assert picture.size == (LABEL + 3 * (64 + MARGIN) + MARGIN, 4 * (64 + MARGIN) + MARGIN)
        assert np.ptp(np.asarray(picture)[:, LABEL:]) > 0


def test_names_are_shown_where_factors_were_asked_for(sprites: FactorData) -> None:
    run = trained(PMP(subspaces=3), sprites)
    pair = (sprites.names[0], sprites.names[1])
    found, names = decode_pair(run, sprites, middle_example(sprites), pair, 2.0, 3)
    assert names[0].startswith("subspace ")
    assert names[0].endswith(f"({pair[0]})")
    assert found.images.shape[:2] == (3, 3)


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
def test_refusals(pair: Any, options: dict[str, Any], message: str, sprites: FactorData, tmp_path: Path) -> None:
    with pytest.raises((UserError, ValueError, IndexError), match=message):
        traverse_pair(trained(BetaVAE(), sprites), pair, sprites, out=tmp_path, **options)


def test_runs_without_a_decoder_or_folder_are_refused(sprites: FactorData) -> None:
    with pytest.raises(UserError, match="needs a decoder"):
        traverse_pair(trained(PCL(), sprites), (0, 1), sprites)
    with pytest.raises(UserError, match="pass out="):
        traverse_pair(trained(BetaVAE(), sprites), (0, 1), sprites)


def test_the_best_and_the_worst(tmp_path: Path) -> None:
    kept(tmp_path, BetaVAE(), [0.2, 0.4, 0.1])
    kept(tmp_path, AE(), [0.3])
    found = [(end, value, run.spec.seed) for end, value, run in best_and_worst_runs(ub.load_runs(tmp_path), "mig")]
    assert sorted(found) == [("best", 0.3, 0), ("best", 0.4, 1), ("worst", 0.1, 2)]
    with pytest.raises(UserError, match=r"No run has a score dci\.disentanglement.*--metrics dci"):
        best_and_worst_runs(ub.load_runs(tmp_path), "dci")
    with pytest.raises(UserError, match="Did you mean 'mig'"):
        best_and_worst_runs(ub.load_runs(tmp_path), "migg")


def test_over_pruned_runs_are_no_extremes_where_others_are(tmp_path: Path) -> None:
    def prune(seeds: set[int]) -> list[int]:
        for run in ub.load_runs(tmp_path):
            assert run.path is not None
            values = {"units": 4 - (run.spec.seed in seeds), "factors": 4}
            with (run.path / "scores.jsonl").open("a") as file:
                file.write(json.dumps({"metric": "active", "codes": "mean", "values": values}) + "\n")
        return [run.spec.seed for _, _, run in best_and_worst_runs(ub.load_runs(tmp_path), "mig")]

    kept(tmp_path, BetaVAE(), [0.2, 0.4, 0.1, 0.3])
    assert prune({1}) == [3, 2]
    assert prune({0, 1, 2, 3}) == [1, 2]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path / "runs", BetaVAE(), [0.2, 0.4, 0.1])
    command = ["traverse", str(tmp_path / "runs"), "--pair", "x,y", "--extremes", "mig", "--columns", "2"]
    assert main([*command, "--out", str(tmp_path / "pictures")]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in told] == ["best mig 0.400", "worst mig 0.100"]
    assert len(list((tmp_path / "pictures").glob("*/pair.png"))) == 2
    assert main(["traverse", str(tmp_path / "runs"), "--pair", "0"]) == 2
    assert "two latents, such as 0,1" in capsys.readouterr().err
    quick(tmp_path / "toy")
    assert main(["traverse", str(tmp_path / "toy"), "--pair", "0,1"]) == 2
    assert "images or meshes" in capsys.readouterr().err
