"""Pictures of what each subspace encodes. One subspace is taken from another example, and the others are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.errors import UserError
from unbraid.pictures.examples import decoded_images, example_images
from unbraid.pictures.images import labelled_grid, tile_scale, write_picture
from unbraid.pictures.traversal import output_folder
from unbraid.runs.run import Run

DONORS = 8  # default number of donors


def swap_codes(own: Float[Tensor, "k d"], donors: Float[Tensor, "m k d"]) -> Float[Tensor, "k m d"]:
    """Return the latents of one example with one subspace replaced. Row i has subspace i of each of the m donors."""
    return (own.sum(0) - own[:, None]) + donors.transpose(0, 1)


def swap_subspaces(
    run: Run,
    data: str | FactorData | None = None,
    *,
    example: int | None = None,
    donors: Sequence[int] | None = None,
    out: str | Path | None = None,
) -> Path:
    """Write `swapping.png`, which shows an example with one subspace at a time replaced by that of other examples.

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
    source = load_data(data if data is not None else run.spec.data, run.device)
    spread = torch.linspace(0, len(source) - 1, min(DONORS, len(source))).long().tolist()
    index = [len(source) // 2 if example is None else example, *(spread if donors is None else donors)]
    if len(index) < 2:
        raise UserError("Swapping needs at least one donor. Got an empty list instead. Pass indices of examples.")
    source.factors(index)  # raises an error if there are no such examples
    rows = swap_rows(run, source, torch.tensor(index, device=source.device))
    grid = labelled_grid(rows, tile_scale(rows[0][1][0].shape[1]))
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
