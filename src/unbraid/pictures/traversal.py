"""Pictures of the effect of each latent. One latent changes while the others keep their values."""

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
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.traversal import RowLabel
from unbraid.nets.any_model import evaluation_mode
from unbraid.pictures.any_model import Adapter, as_images, warn_if_not_pixels
from unbraid.pictures.examples import decoded_images, start_example
from unbraid.pictures.images import encode_picture, labelled_grid, tile_scale, write_picture
from unbraid.runs.run import Run, as_run
from unbraid.runs.run_data import run_data
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.embedding import image_tag
from unbraid.scoring.encoding import encode_table

POPULATION = 2_000  # maximum number of examples whose posteriors determine the rows of a traversal and their order
FRAMES = 24  # number of frames of the animation
FRAME_COLUMNS = 5  # number of latents in each row of a frame


@dataclass(frozen=True)
class TraversalPicture:
    """The result of `traverse`. Notebooks display its image.

    Attributes:
        image: The grid. The first row shows the example and its reconstruction, and each further row shows one latent.
        labels: One label per row after the first, which says what changes in the row.
        paths: The paths of `traversal.png` and `traversal.gif`, or an empty list if no files were written.
    """

    image: Image.Image
    labels: list[RowLabel]
    paths: list[Path]

    def _repr_png_(self) -> bytes:
        return encode_picture([self.image])

    def _repr_html_(self) -> str:
        rows = ", ".join(" ".join(label.text().split()) for label in self.labels)
        return image_tag(self._repr_png_(), f"An example, its reconstruction, and traversals of {rows}")


@dataclass(frozen=True)
class DecodedTraversal:
    """Decoded examples of a traversal.

    Attributes:
        decoded: Decoded examples, of shape (rows, positions, ...).
        labels: One label per row.
        original: The example from which the traversal starts.
        reconstruction: The reconstruction of this example.
    """

    decoded: Tensor
    labels: list[RowLabel]
    original: Tensor
    reconstruction: Tensor

    def first_rows(self, rows: int | None) -> DecodedTraversal:
        """Return the traversal with only the first `rows` rows, or with all rows if `rows` is None."""
        return replace(self, decoded=self.decoded[:rows], labels=self.labels[:rows])

    def as_images(self, data: FactorData) -> DecodedTraversal:
        """Return the traversal with its examples converted to images (c, h, w)."""
        examples = torch.cat([torch.stack([self.original, self.reconstruction]), self.decoded.flatten(0, 1)])
        original, reconstruction, *rest = decoded_images(examples, data)
        decoded = torch.stack(rest).unflatten(0, self.decoded.shape[:2])
        return DecodedTraversal(decoded, self.labels, original, reconstruction)


@torch.no_grad()
def decode_traversal(run: Run, data: FactorData, example: int, positions: Tensor) -> DecodedTraversal:
    """Decode the codes that `Method.traversal` returns for a traversal from one example of the data."""
    x = data.batch(torch.tensor([example], device=data.device))
    return _decode(run, x, encode_population(run, data), positions)


def encode_population(run: Run, data: FactorData) -> Gaussian:
    """Encode examples spread over the data. Their posteriors determine the rows of a traversal and their order."""
    index = torch.linspace(0, len(data) - 1, min(POPULATION, len(data)), device=data.device).long()
    return encode_table(run, data, index)


def _decode(run: Run, x: Tensor, population: Gaussian, positions: Tensor) -> DecodedTraversal:
    z, start, labels = run.spec.method.traversal(run.net, run.net.encode(x), population, positions)
    decoded = run.decode(z.flatten(0, 1)).unflatten(0, z.shape[:2])
    return DecodedTraversal(decoded.cpu(), labels, x[0].cpu(), run.decode(start)[0].cpu())


def traverse_images(model: Any, x: Tensor, example: int, positions: Tensor) -> DecodedTraversal:
    """Decode a traversal that starts from one of the images x. The codes of all images determine its rows."""
    if isinstance(model, Run):
        with torch.no_grad():
            return _decode(model, x[example : example + 1].to(model.device), model.posterior(x), positions)
    adapter = Adapter.from_model(model)
    with evaluation_mode(adapter.modules):
        return traverse_codes(adapter, x, example, positions)


def traverse_codes(adapter: Adapter, x: Tensor, example: int, positions: Tensor) -> DecodedTraversal:
    """Decode a traversal of a model from outside unbraid, with one row per latent.

    If the encoder returns variances, the positions are values of the latent, and rows are sorted by the mean KL of
    their latent. Otherwise positions are distances from the mean code, in standard deviations of the codes of all
    images, and rows are sorted by standard deviation. If there is only one image and the encoder returns no variances,
    positions are added to the values of its latents, and rows are not sorted.
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


@explain_unknown_arguments()
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
    """Draw the effect of each latent of a model.

    The first row of the picture shows an example and its reconstruction. Each further row shows one latent (or
    subspace, or direction on a curved space), which changes while the others keep their values. Rows are sorted by the
    mean KL of the latent, or by the standard deviation of the codes if the encoder does not return variances.

    Args:
        model: A run, the folder of a run, any object with `encode(x)` and `decode(z)`, or a pair (encode, decode) of
            functions or modules.
        data: Images of shape (n, c, h, w). For a run, also a dataset, the name of a dataset, or None for the dataset of
            the run.
        example: The index of the example to start from. By default the one in the middle of a dataset, or the first of
            the given images.
        span: The largest position. Positions run from -span to span. The unit is the standard deviation of the prior,
            the standard deviation of the codes if the encoder does not return variances, or radians on curved spaces.
        columns: The number of positions.
        rows: The maximum number of rows. By default all are shown.
        out: The folder of the files `traversal.png` (the grid) and `traversal.gif` (all latents moving back and forth).
            By default it is the folder of the run. If the run has no folder, or if images are given, no files are
            written by default.

    Returns:
        The picture, the labels of its rows, and the paths of the files.

    Raises:
        UserError: If the model has no decoder, if the data cannot be drawn, or if an argument is not valid.

    >>> import torch
    >>> model = (lambda x: x.flatten(1)[:, :2], lambda z: z.mean(1)[:, None, None, None].expand(-1, 1, 8, 8))
    >>> traverse(model, torch.rand(10, 1, 8, 8)).image.size
    (680, 200)
    """
    model = as_run(model)
    check_grid_arguments(span, columns)
    if rows is not None and rows < 1:
        raise UserError(f"A traversal needs at least 1 row. Got rows={rows} instead.")
    if out is not None and Path(out).suffix.lower() in (".png", ".gif", ".jpg", ".jpeg", ".pdf", ".svg"):
        raise UserError(
            f"'out' must be a folder, in which traversal.png and traversal.gif are written. Got the name of a file, "
            f"{str(out)!r}. To save only the picture, call .image.save({str(out)!r}) of the result."
        )
    run_on_dataset = isinstance(model, Run) and (data is None or isinstance(data, str | FactorData))
    decode = _decode_from_data(model, data, example) if run_on_dataset else _decode_from_images(model, data, example)
    default = model.path if run_on_dataset else None
    folder = default if out is None else Path(out)
    traversal = decode(torch.linspace(-span, span, columns)).first_rows(rows)
    scale = tile_scale(*traversal.decoded.shape[3:])
    grid = draw_grid(traversal, scale)
    if folder is None:
        return TraversalPicture(grid, traversal.labels, [])
    png = write_picture(folder / "traversal.png", grid)
    positions = span * torch.sin(torch.linspace(0, 2 * np.pi, FRAMES + 1)[:-1])
    gif = write_picture(folder / "traversal.gif", *draw_frames(decode(positions).first_rows(rows), scale))
    return TraversalPicture(grid, traversal.labels, [png, gif])


def _decode_from_data(run: Run, data: str | FactorData | None, example: int | None) -> Callable[[Tensor], Any]:
    """Return a function that takes positions and returns the decoded traversal of a run on a dataset."""
    check_decoder(run)
    source = run_data(run, data, run.device)
    chosen = start_example(source, example)
    return lambda positions: decode_traversal(run, source, chosen, positions).as_images(source)


def _decode_from_images(model: Any, x: Any, example: int | None) -> Callable[[Tensor], Any]:
    """Return a function that takes positions and returns the decoded traversal of any model on images."""
    if isinstance(model, Run):
        check_decoder(model)
    elif x is None or isinstance(x, str | FactorData):
        Adapter.from_model(model)
        raise UserError(
            f"A traversal of a {type(model).__name__} needs images x of shape (n, c, h, w). Got {x!r} instead. Call "
            "ub.traverse(model, x), for example with x = ub.data.load('sprites').images(range(100))."
        )
    images, chosen = as_images(x), 0 if example is None else example
    if not 0 <= chosen < len(images):
        raise UserError(f"The example must be the index of an image x, 0 to {len(images) - 1}. Got {chosen} instead.")
    return lambda positions: traverse_images(model, images, chosen, positions)


def check_grid_arguments(span: float, columns: int) -> None:
    """Raise a UserError if a grid cannot have this span or number of columns."""
    if columns < 2 or not span > 0:
        raise UserError(f"A traversal needs at least 2 columns and a span above 0. Got {columns} and {span} instead.")


def check_decoder(run: Run) -> None:
    """Raise a UserError if the run has no decoder."""
    if run.net.decoder is None:
        raise UserError(
            f"A traversal needs a decoder. {run.label} has an encoder only. Examine its codes instead. "
            "Score them (unbraid score, ub.score), or encode examples that differ in one factor with run.encode(x)."
        )


def output_folder(run: Run, out: str | Path | None) -> Path:
    """Return `out`, or by default the folder of the run."""
    folder = Path(out) if out is not None else run.path
    if folder is None:
        raise UserError("The run was trained without a folder, so its pictures need one. Pass the folder as out=.")
    return folder


def draw_grid(traversal: DecodedTraversal, scale: int) -> Image.Image:
    """Draw the example and its reconstruction, and below them one row per latent."""
    rows = [(label.text(), list(images)) for label, images in zip(traversal.labels, traversal.decoded, strict=True)]
    return labelled_grid([("example,\ndecoded", [traversal.original, traversal.reconstruction]), *rows], scale)


def draw_frames(traversal: DecodedTraversal, scale: int) -> list[Image.Image]:
    """Draw one picture per position, with the latents side by side in rows of five."""
    names, decoded = [label.short_name for label in traversal.labels], traversal.decoded
    frames = []
    for j in range(decoded.shape[1]):
        rows = [(f"latents\n{', '.join(names[i : i + FRAME_COLUMNS])}", list(decoded[i : i + FRAME_COLUMNS, j]))
                for i in range(0, len(names), FRAME_COLUMNS)]  # fmt: skip
        frames.append(labelled_grid(rows, scale))
    return frames
