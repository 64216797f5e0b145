"""Pictures that show what each part of the latents encodes.

One part is taken from another example, and the other parts are kept. A part is a subspace, a latent, or a group of
these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.pictures.comparison import add_title, place_in_rows
from unbraid.pictures.examples import check_drawable, decoded_images, example_images
from unbraid.pictures.images import labelled_grid, tile_scale, write_picture
from unbraid.pictures.sheets import choose_examples
from unbraid.pictures.traversal import check_decoder, output_folder
from unbraid.runs.run import Run
from unbraid.runs.run_data import run_data

DONORS = 8  # default number of donors
Groups = Sequence[Sequence[int]]
"""Groups of subspaces or latents. Each group is a list of indices of those that are exchanged together."""


def swap_codes(own: Float[Tensor, "k d"], donors: Float[Tensor, "m k d"]) -> Float[Tensor, "k m d"]:
    """Return the latents of an example with one of its k subspaces replaced. Entry (i, j) has subspace i of donor j."""
    return (own.sum(0) - own[:, None]) + donors.transpose(0, 1)


def swap_subspaces(
    run: Run,
    data: str | FactorData | None = None,
    *,
    example: int | None = None,
    donors: Sequence[int] | None = None,
    out: str | Path | None = None,
) -> Path:
    """Write `swapping.png`, which shows an example after one of its subspaces is replaced by that of another example.

    The first row shows the example and the other examples, which are called donors. Each further row belongs to one
    subspace. It shows the reconstruction of the example, followed by the example decoded with this subspace of each
    donor.

    Args:
        run: A run of a method with subspaces, such as `PMP`, on images or meshes.
        data: A dataset or its name. By default the dataset of the run.
        example: The index of the example. By default the middle row of the data.
        donors: The indices of the donors. By default 8 examples that are spread over the data.
        out: The folder of the file. By default the folder of the run.

    Returns:
        The path of the file.

    Raises:
        UserError: If the method has no subspaces, if there is no donor, or if the run has no folder and `out` is None.
    """
    source = run_data(run, data, run.device)
    spread = torch.linspace(0, len(source) - 1, min(DONORS, len(source))).long().tolist()
    index = [len(source) // 2 if example is None else example, *(spread if donors is None else donors)]
    if len(index) < 2:
        raise UserError("Swapping needs at least one donor. Got an empty list instead. Pass indices of examples.")
    source.factors(index)  # raises an error if there are no such examples
    rows = swap_rows(run, source, torch.tensor(index, device=source.device))
    grid = labelled_grid(rows, tile_scale(*rows[0][1][0].shape[1:]))
    return write_picture(output_folder(run, out) / "swapping.png", grid)


@torch.no_grad()
def swap_rows(run: Run, data: FactorData, index: Tensor) -> list[tuple[str, list[Tensor]]]:
    """Return labelled rows of images. The first index is the example, and the others are the donors."""
    vectors = run.spec.method.subspace_codes(run.net, run.net.encode(data.batch(index)))
    if vectors is None:
        raise UserError(f"Swapping needs a method with subspaces, such as PMP. Got {run.label} instead.")
    own, *donors = vectors
    unchanged = decoded_images(run.decode(own.sum(0, keepdim=True)), data)
    rows = [("example,\ndonors", example_images(data, index))]
    for i, z in enumerate(swap_codes(own, torch.stack(donors))):
        rows.append((f"subspace {i}\ntaken", [*unchanged, *decoded_images(run.decode(z), data)]))
    return rows


def draw_swaps(
    run: Run,
    data: str | FactorData | None = None,
    *,
    examples: int = 5,
    seed: int = 0,
    groups: Groups | None = None,
    out: str | Path | None = None,
) -> Path:
    """Write `swap.png`, which shows what happens if examples exchange a group of latents. Each group has one panel.

    In each panel, the first row and the first column show the same examples. Each other cell combines two
    examples. The group of latents comes from the example at the top of its column. All other latents come from the
    example at the left of its row. The diagonal therefore shows reconstructions.

    Args:
        run: A run with a decoder, on images or meshes.
        data: A dataset or its name. By default the dataset of the run.
        examples: The number of examples, at least 2.
        seed: The random seed with which examples are drawn.
        groups: The groups to exchange, such as ``[[0], [3, 4]]``. The numbers are indices of subspaces if the method
            has subspaces (`PMP`), and indices of latents otherwise. By default, each subspace is a group. If the method
            separates appearance from perspective (`CVITAE`), these are the two groups. Otherwise each latent is a
            group.
        out: The folder of the file. By default the folder of the run.

    Returns:
        The path of the file.

    Raises:
        UserError: If the run has no decoder, if the data cannot be drawn, if a group is not valid, if there are fewer
            than 2 examples, or if the run has no folder and `out` is None.

    >>> import tempfile
    >>> import unbraid as ub
    >>> (run,) = ub.train(ub.methods.CVITAE(), "sprites", steps=1, latents=4, net="vitae_mlp_half", quiet=True)
    >>> draw_swaps(run, examples=2, out=tempfile.mkdtemp()).name  # two panels: appearance and perspective
    'swap.png'
    """
    if examples < 2:
        raise UserError(f"An exchange needs at least 2 examples. Got {examples} instead.")
    check_decoder(run)
    source = run_data(run, data, run.device)
    check_drawable(source)
    folder = output_folder(run, out)
    panels = swap_panels(run, source, choose_examples(source, examples, seed), groups)
    return write_picture(folder / "swap.png", place_in_rows(panels, math.ceil(math.sqrt(len(panels)))))


@torch.no_grad()
def swap_panels(run: Run, data: FactorData, index: Tensor, groups: Groups | None = None) -> list[Image.Image]:
    """Draw one panel per group, with the examples at `index` in the first row and the first column."""
    names, parts = latent_parts(run, data.batch(index))
    shown = example_images(data, index)
    panels = []
    for group in default_groups(run, len(names)) if groups is None else groups:
        name = group_name(run, names, group)
        cells = run.decode(exchanged_latents(run, parts, group).flatten(0, 1)).unflatten(0, (len(index), len(index)))
        rows = [("taken from", [torch.ones_like(shown[0]), *shown])]
        rows += [("the rest\nkept", [own, *decoded_images(row, data)]) for own, row in zip(shown, cells, strict=True)]
        panels.append(add_title(labelled_grid(rows, tile_scale(*shown[0].shape[1:])), name))
    return panels


def latent_parts(run: Run, x: Tensor) -> tuple[list[str], Float[Tensor, "n k d"]]:
    """Return the names of the k parts of the latents, and these parts for each of n examples.

    The parts of an example add up to the latents that are decoded. They are the subspaces of the method if it has any,
    and single latents otherwise.
    """
    method, q = run.spec.method, run.net.encode(x)
    vectors = method.subspace_codes(run.net, q)
    if vectors is not None:
        return method.column_names(vectors.shape[1]), vectors
    z = method.point_latents(run.net, q)
    return method.column_names(z.shape[1]), z.diag_embed()


def exchanged_latents(run: Run, parts: Float[Tensor, "n k d"], group: Sequence[int]) -> Float[Tensor, "n n d"]:
    """Return latents whose entry (i, j) has the parts `group` of example j and all other parts of example i.

    Points of a curved latent space are projected back to it.
    """
    taken = parts[:, list(group)].sum(1)
    z = (parts.sum(1) - taken)[:, None] + taken
    return run.spec.method.project(z.flatten(0, 1)).view_as(z)


def default_groups(run: Run, parts: int) -> Groups:
    """Return appearance and perspective if the method separates them, and otherwise each part alone."""
    appearance = run.spec.method.appearance_columns(parts)
    if appearance is None:
        return [[i] for i in range(parts)]
    return [list(appearance), [i for i in range(parts) if i not in appearance]]


def group_name(run: Run, names: Sequence[str], group: Sequence[int]) -> str:
    """Return the title of a group. Raise a UserError if the group is empty or has an invalid or repeated index."""
    if not group or len(set(group)) < len(group) or not set(group) <= set(range(len(names))):
        raise UserError(
            f"A group must have at least one index, each from 0 to {len(names) - 1} and none twice, because "
            f"{run.label} has {len(names)} latents or subspaces. Got {', '.join(map(str, group)) or 'none'} instead."
        )
    return " and ".join(names[i] for i in group)
