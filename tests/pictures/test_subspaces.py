"""Pictures of swapped subspaces and latents."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from PIL import Image

import unbraid as ub
from oracles import pmp as loops
from support.command_line import Capture, unbraid
from support.meshes import spheres, untrained_run
from support.pmp_examples import random_codes
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import CVITAE, PMP, UVITAE, VAE, DiffusionVAE, Method
from unbraid.nets.registry import resolve_net
from unbraid.pictures.comparison import GAP
from unbraid.pictures.examples import example_images, mesh_images
from unbraid.pictures.images import LABEL, MARGIN
from unbraid.pictures.subspaces import (
    default_groups,
    draw_swaps,
    exchanged_latents,
    latent_parts,
    swap_codes,
    swap_panels,
    swap_rows,
    swap_subspaces,
)
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


def test_exchanged_latents_of_a_vae_are_columns_of_another_example(sprites: FactorData) -> None:
    """Entry (i, j) has the columns of the group from example j and all others from example i."""
    run, x = sprites_run(VAE(), sprites), sprites.batch(torch.tensor([5, 900, 4000]))
    names, parts = latent_parts(run, x)
    z = exchanged_latents(run, parts, [0, 3])
    own = run.net.encode(x).mean
    assert names == [f"latent {i}" for i in range(4)]
    for i, j in itertools.product(range(3), range(3)):
        expected = torch.stack([own[j, 0], own[i, 1], own[i, 2], own[j, 3]])
        torch.testing.assert_close(z[i, j], expected)


def test_exchanged_subspaces_are_those_of_pmp(sprites: FactorData) -> None:
    run, x = sprites_run(PMP(subspaces=3), sprites), sprites.batch(torch.tensor([5, 900, 4000]))
    vectors = run.spec.method.subspace_codes(run.net, run.net.encode(x))
    assert vectors is not None
    names, parts = latent_parts(run, x)
    assert names == [f"subspace {i}" for i in range(3)]
    for k in range(3):
        z = exchanged_latents(run, parts, [k])
        for i in range(3):
            torch.testing.assert_close(z[i], swap_codes(vectors[i], vectors)[k])


@pytest.mark.parametrize("method", [CVITAE(), UVITAE()])
def test_vitae_exchanges_appearance_and_perspective(method: Method, sprites: FactorData) -> None:
    """The exchanged perspective keeps the image that is warped, and the exchanged appearance keeps the warp."""
    spec = RunSpec(method, "sprites", latents=4)
    run = Run(spec, build_net(spec, sprites.shape, resolve_net("vitae_mlp_half")[1]).eval())
    assert default_groups(run, 4) == [[0, 1], [2, 3]]
    names, parts = latent_parts(run, sprites.batch(torch.tensor([5, 900])))
    assert names == ["appearance 0", "appearance 1", "perspective 2", "perspective 3"]
    kept, taken = (exchanged_latents(run, parts, group)[0, 1, None] for group in ([2, 3], [0, 1]))
    own, other = (method.decode_appearance(run.net, parts.sum(1)[i, None]) for i in (0, 1))
    torch.testing.assert_close(method.decode_appearance(run.net, kept), own)
    torch.testing.assert_close(method.decode_appearance(run.net, taken), other)


def test_exchanged_points_stay_on_a_curved_space(sprites: FactorData) -> None:
    run = sprites_run(DiffusionVAE(space="sphere"), sprites)
    names, parts = latent_parts(run, sprites.batch(torch.tensor([5, 900, 4000])))
    z = exchanged_latents(run, parts, [1])
    assert len(names) == 4
    torch.testing.assert_close(z.norm(dim=2), torch.ones(3, 3))


def test_panels_show_the_examples_and_what_is_decoded(sprites: FactorData) -> None:
    """There is one panel per group. Its diagonal has the reconstructions, whatever is exchanged."""
    run, index = sprites_run(VAE(), sprites), torch.tensor([5, 900, 4000])
    assert len(swap_panels(run, sprites, index)) == 4
    first, second = swap_panels(run, sprites, index, [[0], [1, 2, 3]])
    side, top = 64 + MARGIN, first.height - (4 * (64 + MARGIN) + MARGIN)

    def cell(panel: Image.Image, row: int, column: int) -> bytes:
        left, up = LABEL + column * side, top + MARGIN + row * side
        return panel.crop((left, up, left + 64, up + 64)).tobytes()

    for i in range(1, 4):
        assert cell(first, 0, i) == cell(first, i, 0) == cell(second, 0, i)
        assert cell(first, i, i) == cell(second, i, i)
    for i, j in itertools.permutations(range(1, 4), 2):
        assert cell(first, i, j) == cell(second, j, i)  # the rest of one group is the other group


def test_invalid_groups_raise(sprites: FactorData, tmp_path: Path) -> None:
    run = sprites_run(VAE(), sprites)
    for groups, got in (([[4]], "Got 4 instead"), ([[0, 0]], "Got 0, 0 instead"), ([[]], "Got none instead")):
        with pytest.raises(UserError, match=rf"each from 0 to 3 and none twice, because .* has 4 latents.* {got}"):
            draw_swaps(run, sprites, groups=groups, out=tmp_path)
    with pytest.raises(UserError, match="at least 2 examples"):
        draw_swaps(run, sprites, examples=1, out=tmp_path)
    with pytest.raises(UserError, match="Pass the folder as out="):
        draw_swaps(run, sprites)
    assert not list(tmp_path.iterdir())


def test_command_draws_every_run(tmp_path: Path, capsys: Capture) -> None:
    methods = [PMP(subspaces=2), VAE()]
    ub.train(methods, "sprites", steps=1, batch=4, latents=3, net="mlp", out=tmp_path / "runs", quiet=True)
    assert unbraid("swap", str(tmp_path / "runs"), "--latents", "0,0+1", "--examples", "2") == 0
    paths = [Path(line.rpartition(": ")[2]) for line in capsys.readouterr().out.splitlines()]
    assert len(paths) == 2
    for path in paths:
        with Image.open(path) as picture:
            assert picture.width == 2 * (LABEL + 3 * (64 + MARGIN) + MARGIN) + GAP  # two panels
    out = tmp_path / "out"
    assert unbraid("swap", str(tmp_path / "runs"), "--latents", "7", "--out", str(out)) == 2
    assert "each from 0 to 1 and none twice" in capsys.readouterr().err
    assert not out.exists()
