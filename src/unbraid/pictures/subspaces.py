"""Pictures of what each subspace holds: take one from another example, keep the others, decode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.errors import UserError
from unbraid.methods.pmp import PMP
from unbraid.pictures.dataset import as_pictures, mesh_pictures
from unbraid.pictures.traversal import encode_picture, page
from unbraid.runs.run import Run
from unbraid.runtime.files import make_folder, write_atomic

DONORS = 8


def swapped(own: Float[Tensor, "k d"], donors: Float[Tensor, "m k d"]) -> Float[Tensor, "k m d"]:
    """Codes of one example with subspace i, row by row, taken from each donor in turn."""
    return (own.sum(0) - own[:, None]) + donors.transpose(0, 1)


def swap_subspaces(
    run: Run,
    data: str | FactorData | None = None,
    *,
    example: int | None = None,
    donors: Sequence[int] | None = None,
    out: str | Path | None = None,
) -> Path:
    """Write `swapping.png` and return its path: what an example becomes with one subspace of another.

    The first row shows the example and the donors, each further row one subspace: the example decoded, then decoded
    with that subspace of each donor. Donors are spread over the data unless named. For runs of `PMP`, of images or
    meshes.
    """
    method = run.spec.method
    if not isinstance(method, PMP):
        raise UserError(f"Swapping needs a run of PMP, whose code is a sum of subspaces. Got {run.label} instead.")
    source = load_data(data if data is not None else run.spec.data, run.device)
    folder = Path(out) if out is not None else run.path
    if folder is None:
        raise UserError("A run that was trained without a folder needs one for its pictures: pass out=.")
    spread = torch.linspace(0, len(source) - 1, min(DONORS, len(source))).long().tolist()
    index = [len(source) // 2 if example is None else example, *(spread if donors is None else donors)]
    if len(index) < 2:
        raise UserError("Swapping needs at least one donor. Got an empty list instead. Name some examples.")
    source.factors(index)  # refuses examples that do not exist
    rows = swap_rows(run, method, source, torch.tensor(index, device=source.device))
    make_folder(folder)
    path = folder / "swapping.png"
    write_atomic(path, encode_picture([page(rows, max(1, 64 // rows[0][1][0].shape[1]))]))
    return path


@torch.no_grad()
def swap_rows(run: Run, method: PMP, data: FactorData, index: Tensor) -> list[tuple[str, list[Tensor]]]:
    """Labelled rows of pictures: the examples at `index`, then the first of them with each subspace of the others."""
    own, *donors = method.project(run.net, run.net.encode(data.batch(index)))
    plain = _decoded(run, data, own.sum(0, keepdim=True))
    rows = [("example,\ndonors", as_pictures(data, index))]
    for i, z in enumerate(swapped(own, torch.stack(donors))):
        rows.append((f"subspace {i}\ntaken", [*plain, *_decoded(run, data, z)]))
    return rows


def _decoded(run: Run, data: FactorData, z: Float[Tensor, "n d"]) -> list[Tensor]:
    """Pictures of what codes decode to."""
    found = run.decode(z).cpu()
    return list(found) if found.ndim == 4 else mesh_pictures(found, data)
