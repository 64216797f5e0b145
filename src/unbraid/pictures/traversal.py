"""Pictures of what each latent does: change one, keep the others, and decode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.traversal import RowLabel
from unbraid.pictures.any_model import Adapter, as_images, warn_if_not_pixels
from unbraid.pictures.examples import check_drawable, decoded_images, middle_example
from unbraid.pictures.images import encode_picture, labelled_grid, tile_scale, write_picture
from unbraid.runs.run import Run
from unbraid.scoring.encoding import encode_table

POPULATION = 2_000  # examples of the data by which directions are computed and sorted
FRAMES = 24  # of the animation
FRAME_COLUMNS = 5  # latents in each row of a frame


@dataclass(frozen=True)
class TraversalPicture:
    """The result of `traverse`. A notebook shows the image.

    Attributes:
        image: The grid: one row per latent, below a row with the example and its reconstruction.
        labels: What changes in each row after the first, in order.
        paths: The files that were written: `traversal.png` and `traversal.gif`, or none.
    """

    image: Image.Image
    labels: list[RowLabel]
    paths: list[Path]

    def _repr_png_(self) -> bytes:
        return encode_picture([self.image])


@dataclass(frozen=True)
class DecodedTraversal:
    """Decoded examples of a traversal.

    Attributes:
        decoded: Decoded examples, of shape (rows, positions, ...).
        labels: One label per row.
        original: The example that the traversal starts from.
        reconstruction: Its reconstruction.
    """

    decoded: Tensor
    labels: list[RowLabel]
    original: Tensor
    reconstruction: Tensor

    def first_rows(self, rows: int | None) -> DecodedTraversal:
        """Return the first rows only, or all for None."""
        return replace(self, decoded=self.decoded[:rows], labels=self.labels[:rows])

    def as_images(self, data: FactorData) -> DecodedTraversal:
        """Return the traversal with images (c, h, w) instead of examples of the data."""
        examples = torch.cat([torch.stack([self.original, self.reconstruction]), self.decoded.flatten(0, 1)])
        original, reconstruction, *rest = decoded_images(examples, data)
        decoded = torch.stack(rest).unflatten(0, self.decoded.shape[:2])
        return DecodedTraversal(decoded, self.labels, original, reconstruction)


@torch.no_grad()
def decode_traversal(run: Run, data: FactorData, example: int, positions: Tensor) -> DecodedTraversal:
    """Decode the latents of `Method.traversal` from one example of the data, by default one row per latent."""
    x = data.batch(torch.tensor([example], device=data.device))
    return _decode(run, x, sample_posteriors(run, data), positions)


def sample_posteriors(run: Run, data: FactorData) -> Gaussian:
    """Return the posteriors of examples spread over the data, by which directions are computed and sorted."""
    index = torch.linspace(0, len(data) - 1, min(POPULATION, len(data)), device=data.device).long()
    return encode_table(run, data, index)


def _decode(run: Run, x: Tensor, population: Gaussian, positions: Tensor) -> DecodedTraversal:
    z, start, labels = run.spec.method.traversal(run.net, run.net.encode(x), population, positions)
    decoded = run.decode(z.flatten(0, 1)).unflatten(0, z.shape[:2])
    return DecodedTraversal(decoded.cpu(), labels, x[0].cpu(), run.decode(start)[0].cpu())


def traverse_images(model: Any, x: Tensor, example: int, positions: Tensor) -> DecodedTraversal:
    """Decode a traversal from one of the images x, which are also the population; see `traverse_codes`."""
    if isinstance(model, Run):
        with torch.no_grad():
            return _decode(model, x[example : example + 1].to(model.device), model.posterior(x), positions)
    adapter = Adapter.from_model(model)
    with adapter.evaluation_mode():
        return traverse_codes(adapter, x, example, positions)


def traverse_codes(adapter: Adapter, x: Tensor, example: int, positions: Tensor) -> DecodedTraversal:
    """Change each latent of one image's code in turn and decode, with the most informative latents first.

    If the encoder returns variances, latents are sorted by nats and take the positions themselves, as deviations of a
    standard normal prior. Otherwise they are sorted by the standard deviation of their codes, and positions are
    multiples of it from the mean. The code of a single image has no standard deviation; its latents take the positions
    relative to their own values.
    """
    codes = adapter.encode_images(x)
    start, std = codes.z[example : example + 1], codes.z.std(0, correction=0)
    if codes.nats is not None:
        centre, unit, size, measure = 0 * std, 1 + 0 * std, codes.nats, "nats"
    elif len(x) > 1:
        centre, unit, size, measure = codes.z.mean(0), std, std, "std"
    else:
        centre, unit, size, measure = start[0], 1 + 0 * std, std, None
    order = size.argsort(descending=True, stable=True).tolist()
    z = start.repeat(len(order), len(positions), 1)
    for row, latent in enumerate(order):
        z[row, :, latent] = centre[latent] + unit[latent] * positions
    labels = [RowLabel(f"latent {i}", i, **({measure: float(size[i])} if measure else {})) for i in order]
    shape = tuple(x.shape[1:])
    images = adapter.decode_images(z.flatten(0, 1), shape).unflatten(0, z.shape[:2])
    reconstruction = adapter.decode_images(start, shape)[0]
    warn_if_not_pixels(reconstruction)
    return DecodedTraversal(images, labels, x[example].cpu(), reconstruction)


def traverse(
    model: Any,
    data: Any = None,
    *,
    example: int | None = None,
    span: float = 2.0,
    columns: int = 9,
    rows: int | None = None,
    out: str | Path | None = None,
) -> TraversalPicture:
    """Draw what each latent of a model does.

    The picture has one row per latent (or subspace, or direction on a curved space), in which it changes while the
    others keep their values. The first row shows the example and its reconstruction. Rows are sorted by the nats that
    the latent carries, or by the standard deviation of the codes if the posteriors are not known.

    Args:
        model: A run; or any object with `encode(x)` and `decode(z)`; or a pair (encode, decode) of functions or
            modules.
        data: For a run, a dataset, the name of one, or None for the dataset of the run. For any model, images of shape
            (n, c, h, w).
        example: The index of the example to start from. By default the middle one of a dataset, or the first image.
        span: Positions run from -span to span: deviations of the prior, or of the codes where the posteriors are not
            known, or radians on curved spaces.
        columns: The number of positions.
        rows: The largest number of rows. By default all are shown.
        out: A folder. `traversal.png` (the grid) and `traversal.gif` (all latents moving back and forth) are written
            there. By default they are written to the folder of a run on a dataset; of images, nothing is written.

    Returns:
        The picture, the labels of its rows, and the paths of the files.

    Raises:
        UserError: If the model has no decoder, if the data cannot be drawn, or if an argument is not valid.

    >>> import torch
    >>> model = (lambda x: x.flatten(1)[:, :2], lambda z: z.mean(1)[:, None, None, None].expand(-1, 1, 8, 8))
    >>> traverse(model, torch.rand(10, 1, 8, 8)).image.size
    (680, 200)
    """
    check_grid_arguments(span, columns)
    if rows is not None and rows < 1:
        raise UserError(f"A traversal needs at least 1 row. Got rows={rows} instead.")
    run_on_dataset = isinstance(model, Run) and (data is None or isinstance(data, str | FactorData))
    decode = _decode_from_data(model, data, example) if run_on_dataset else _decode_from_images(model, data, example)
    folder = output_folder(model, out) if run_on_dataset else None if out is None else Path(out)
    found = decode(torch.linspace(-span, span, columns)).first_rows(rows)
    scale = tile_scale(found.decoded.shape[3])
    grid = draw_grid(found, scale)
    if folder is None:
        return TraversalPicture(grid, found.labels, [])
    png = write_picture(folder / "traversal.png", grid)
    swing = span * torch.sin(torch.linspace(0, 2 * np.pi, FRAMES + 1)[:-1])
    gif = write_picture(folder / "traversal.gif", *draw_frames(decode(swing).first_rows(rows), scale))
    return TraversalPicture(grid, found.labels, [png, gif])


def _decode_from_data(run: Run, data: str | FactorData | None, example: int | None) -> Callable[[Tensor], Any]:
    """Return a function that decodes positions, for a run on a dataset."""
    check_decoder(run)
    source = load_data(data if data is not None else run.spec.data, run.device)
    check_drawable(source)
    chosen = middle_example(source) if example is None else example
    source.factors([chosen])  # raises an error if there is no such example
    return lambda positions: decode_traversal(run, source, chosen, positions).as_images(source)


def _decode_from_images(model: Any, x: Any, example: int | None) -> Callable[[Tensor], Any]:
    """Return a function that decodes positions, for any model on images."""
    if isinstance(model, Run):
        check_decoder(model)
    elif x is None or isinstance(x, str | FactorData):
        Adapter.from_model(model)
        raise UserError(
            f"A traversal of a {type(model).__name__} needs images x, (n, c, h, w): ub.traverse(model, x). Got {x!r} "
            "instead. Images of a dataset: ub.data.load('sprites').images(range(100))."
        )
    images, chosen = as_images(x), 0 if example is None else example
    if not 0 <= chosen < len(images):
        raise UserError(f"The example must be the index of an image of x, 0 to {len(images) - 1}. Got {chosen}.")
    return lambda positions: traverse_images(model, images, chosen, positions)


def check_grid_arguments(span: float, columns: int) -> None:
    """Raise a UserError if a grid cannot have this span or number of columns."""
    if columns < 2 or not span > 0:
        raise UserError(f"A traversal needs at least 2 columns and a span above 0. Got {columns} and {span} instead.")


def check_decoder(run: Run) -> None:
    """Raise a UserError if the run has no decoder."""
    if run.net.decoder is None:
        raise UserError(
            f"A traversal needs a decoder; {run.label} trained an encoder only. Look at its codes instead: score them "
            "(unbraid score, ub.score), or encode examples that differ in one factor with run.encode(x)."
        )


def output_folder(run: Run, out: str | Path | None) -> Path:
    """Return `out`, or by default the folder of the run."""
    folder = Path(out) if out is not None else run.path
    if folder is None:
        raise UserError("A run that was trained without a folder needs one for its pictures: pass out=.")
    return folder


def draw_grid(found: DecodedTraversal, scale: int) -> Image.Image:
    """Draw the example and its reconstruction, and below them one row per latent."""
    rows = [(label.text(), list(images)) for label, images in zip(found.labels, found.decoded, strict=True)]
    return labelled_grid([("example,\ndecoded", [found.original, found.reconstruction]), *rows], scale)


def draw_frames(found: DecodedTraversal, scale: int) -> list[Image.Image]:
    """Draw one picture per position, with the latents side by side in rows of five."""
    names, starts = [label.short_name for label in found.labels], range(0, len(found.labels), FRAME_COLUMNS)
    frames = []
    for j in range(found.decoded.shape[1]):
        rows = [(f"latents\n{', '.join(names[i : i + FRAME_COLUMNS])}", list(found.decoded[i : i + FRAME_COLUMNS, j]))
                for i in starts]  # fmt: skip
        frames.append(labelled_grid(rows, scale))
    return frames
