"""Pictures of swapped subspaces."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from PIL import Image

from oracles import pmp as loops
from support.meshes import spheres, untrained_run
from support.pmp_examples import random_codes
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import PMP, VAE, Method
from unbraid.nets.registry import resolve_net
from unbraid.pictures.examples import example_images, mesh_images
from unbraid.pictures.subspaces import swap_codes, swap_rows, swap_subspaces
from unbraid.runs.network import build_net
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec


def sprites_run(method: Method, data: FactorData) -> Run:
    """Return an untrained run on sprites."""
    spec = RunSpec(method, "sprites", latents=4)
    return Run(spec, build_net(spec, data.shape, resolve_net("locatello")[1]).eval())


def test_swap_codes_equals_its_loops() -> None:
    own, donors = random_codes(3, 2, seed=1), random_codes(4, 3, 2, seed=2)
    swapped = swap_codes(own, donors)
    for i, j in itertools.product(range(3), range(4)):
        expected = loops.mixture(donors[j].tolist(), own.tolist(), i)
        assert swapped[i, j].tolist() == pytest.approx([sum(v) for v in zip(*expected, strict=True)])


def test_one_row_per_subspace(sprites: FactorData, tmp_path: Path) -> None:
    run = sprites_run(PMP(subspaces=3), sprites)
    rows = swap_rows(run, sprites, torch.tensor([5, 5, 9]))
    assert [len(tiles) for _, tiles in rows] == [3] * 4
    assert torch.equal(rows[0][1][2], sprites.batch(torch.tensor([9]))[0])
    for _, tiles in rows[1:]:
        torch.testing.assert_close(tiles[0], tiles[1])  # the first donor is the example itself
        assert not torch.equal(tiles[0], tiles[2])
    path = swap_subspaces(run, example=5, donors=[7, 9], out=tmp_path)
    with Image.open(path) as picture:
        assert picture.width > picture.height > 0
    assert swap_subspaces(run, sprites, out=tmp_path) == path


def test_invalid_arguments_raise(sprites: FactorData, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs a method with subspaces, such as PMP"):
        swap_subspaces(sprites_run(VAE(), sprites), sprites, out=tmp_path)
    run = sprites_run(PMP(), sprites)
    with pytest.raises(UserError, match="Pass the folder as out="):
        swap_subspaces(run, sprites)
    with pytest.raises(ValueError, match="at least one donor"):
        swap_subspaces(run, sprites, donors=[], out=tmp_path)
    with pytest.raises(ValueError, match="must lie in"):
        swap_subspaces(run, sprites, donors=[10**9], out=tmp_path)


def test_rows_show_decoded_meshes() -> None:
    data = spheres()
    run = untrained_run(data)
    rows = swap_rows(run, data, torch.tensor([3, 3, 20]))
    assert torch.equal(rows[0][1][2], example_images(data, torch.tensor([20]))[0])
    torch.testing.assert_close(rows[1][1][0], mesh_images(run.decode(run.encode(data.images([3]))), data)[0])
