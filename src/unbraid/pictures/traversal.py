"""Pictures of what each latent does: move one, hold the others, decode."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.pictures.any_model import Adapter, as_images, warn_of_logits
from unbraid.runs.run import Run
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.scoring.encoding import encode_table

MARGIN, LABEL = 2, 84  # pixels between tiles, and for the row labels
EXAMPLES = 2_000  # of the data, to rank latents by information
FRAMES = 24  # of the animation


@dataclass(frozen=True)
class Sweep:
    """What was decoded (row, position, ...) with the rows' names, and the example they start from."""

    images: Tensor
    labels: list[str]
    original: Tensor
    reconstruction: Tensor

    def first(self, rows: int | None) -> Sweep:
        """The first rows only, all by default."""
        return Sweep(self.images[:rows], self.labels[:rows], self.original, self.reconstruction)


@torch.no_grad()
def sweep(run: Run, data: FactorData, example: int, positions: Tensor) -> Sweep:
    """Decode what the method walks through from one example (`Method.walk`): by default each latent in turn."""
    x = data.batch(torch.tensor([example], device=data.device))
    return _walked(run, x, population(run, data), positions)


def population(run: Run, data: FactorData) -> Gaussian:
    """The posteriors of examples spread over the data, by which directions are found and sorted."""
    spread = torch.linspace(0, len(data) - 1, min(EXAMPLES, len(data)), device=data.device).long()
    return encode_table(run, data, spread)


def _walked(run: Run, x: Tensor, others: Gaussian, positions: Tensor) -> Sweep:
    walk = run.spec.method.walk(run.net, run.net.encode(x), others, positions)
    images = run.decode(walk.z.flatten(0, 1)).unflatten(0, walk.z.shape[:2])
    return Sweep(images.cpu(), walk.labels, x[0].cpu(), run.decode(walk.start)[0].cpu())


def sweep_images(model: Any, x: Tensor, example: int, positions: Tensor) -> Sweep:
    """The same from one of some images x, which are the population too; without a method, `sweep_codes`."""
    if isinstance(model, Run):
        with torch.no_grad():
            return _walked(model, x[example : example + 1].to(model.device), model.posterior(x), positions)
    adapter = Adapter.of(model)
    with adapter.still():
        return sweep_codes(adapter, x, example, positions)


def sweep_codes(adapter: Adapter, x: Tensor, example: int, positions: Tensor) -> Sweep:
    """Move each latent of one image's code in turn and decode, those that tell the images apart best first.

    Where the encoder names its variances, latents are sorted by nats and take the positions themselves, as deviations
    of a standard normal prior. Elsewhere they are sorted by the spread of their codes and take its multiples about the
    mean; the code of a single image has no spread, and takes the positions about itself.
    """
    codes = adapter.codes(x)
    start, spread = codes.z[example : example + 1], codes.z.std(0, correction=0)
    if codes.nats is not None:
        middle, unit, worth, label = 0 * spread, 1 + 0 * spread, codes.nats, "{:.2f} nats"
    elif len(x) > 1:
        middle, unit, worth, label = codes.z.mean(0), spread, spread, "std {:.2g}"
    else:
        middle, unit, worth, label = start[0], 1 + 0 * spread, spread, ""
    order = worth.argsort(descending=True, stable=True).tolist()
    z = start.repeat(len(order), len(positions), 1)
    for row, latent in enumerate(order):
        z[row, :, latent] = middle[latent] + unit[latent] * positions
    shape = tuple(x.shape[1:])
    images = adapter.images(z.flatten(0, 1), shape).unflatten(0, z.shape[:2])
    labels = [f"latent {i}\n{label.format(float(worth[i]))}".strip() for i in order]
    reconstruction = adapter.images(start, shape)[0]
    warn_of_logits(reconstruction)
    return Sweep(images, labels, x[example].cpu(), reconstruction)


def pixels(image: Tensor) -> Image.Image:
    """A (c, h, w) tensor in [0, 1] as an RGB picture."""
    array = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return Image.fromarray(np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array)


def page(rows: list[tuple[str, list[Tensor]]], scale: int) -> Image.Image:
    """Labelled rows of tiles on white."""
    h, w = rows[0][1][0].shape[1] * scale, rows[0][1][0].shape[2] * scale
    columns = max(len(tiles) for _, tiles in rows)
    canvas = Image.new("RGB", (LABEL + columns * (w + MARGIN) + MARGIN, len(rows) * (h + MARGIN) + MARGIN), "white")
    draw = ImageDraw.Draw(canvas)
    for i, (label, tiles) in enumerate(rows):
        top = MARGIN + i * (h + MARGIN)
        draw.multiline_text((4, top + h // 2), label, fill="black", anchor="lm")
        for j, tile in enumerate(tiles):
            picture = pixels(tile).resize((w, h), Image.Resampling.NEAREST)
            canvas.paste(picture, (LABEL + j * (w + MARGIN), top))
    return canvas


@overload
def traverse(
    model: Run,
    data: str | FactorData | None = None,
    *,
    example: int | None = None,
    span: float = 2.0,
    columns: int = 9,
    rows: int | None = None,
    out: str | Path | None = None,
) -> tuple[Path, Path]: ...


@overload
def traverse(
    model: Any,
    data: Any,
    *,
    example: int | None = None,
    span: float = 2.0,
    columns: int = 9,
    rows: int | None = None,
    out: str | Path | None = None,
) -> Image.Image: ...


def traverse(
    model: Any,
    data: Any = None,
    *,
    example: int | None = None,
    span: float = 2.0,
    columns: int = 9,
    rows: int | None = None,
    out: str | Path | None = None,
) -> tuple[Path, Path] | Image.Image:
    """Draw what each latent does, of a trained run on its data or of any model on some images.

    ``traverse(run)`` and ``traverse(run, data)``, with a dataset or its name, write `traversal.png` (a row a latent)
    and `traversal.gif` (all latents swinging) to `out`, the run's folder by default, and return their paths. Rows are
    sorted by how many nats the latent carries; positions run from -span to span.

    ``traverse(model, x)`` takes images x, (n, c, h, w), and a run, an object with `encode` and `decode`, or a pair of
    functions or modules. It returns the grid as a picture (a notebook shows it, ``.save`` writes it) and writes both
    files only to an `out`. Rows are sorted by the spread of the codes of x, and positions are its multiples, where the
    encoder does not say how sure it is; see `sweep_codes`. The first row shows the example and its reconstruction;
    `rows` is the most latents to show.

    >>> import torch
    >>> model = (lambda x: x.flatten(1)[:, :2], lambda z: z.mean(1)[:, None, None, None].expand(-1, 1, 8, 8))
    >>> traverse(model, torch.rand(10, 1, 8, 8)).size
    (680, 200)
    """
    if columns < 2 or not span > 0:
        raise UserError(f"A traversal needs at least 2 columns and a span above 0. Got {columns} and {span} instead.")
    if rows is not None and rows < 1:
        raise UserError(f"A traversal needs at least 1 row. Got rows={rows} instead.")
    of_run = isinstance(model, Run) and (data is None or isinstance(data, str | FactorData))
    find = _from_data(model, data, example) if of_run else _from_images(model, data, example)
    folder = Path(out) if out is not None else model.path if of_run else None
    if of_run and folder is None:
        raise UserError("A run that was trained without a folder needs one for its pictures: pass out=.")
    if folder is not None:
        make_folder(folder)
    found = find(torch.linspace(-span, span, columns)).first(rows)
    scale = max(1, 64 // found.images.shape[3])
    still = _still(found, scale)
    if folder is None:
        return still
    write_atomic(folder / "traversal.png", encode_picture([still]))
    swing = span * torch.sin(torch.linspace(0, 2 * np.pi, FRAMES + 1)[:-1])
    write_atomic(folder / "traversal.gif", encode_picture(_frames(find(swing).first(rows), scale)))
    return (folder / "traversal.png", folder / "traversal.gif") if of_run else still


def _from_data(run: Run, data: str | FactorData | None, example: int | None) -> Callable[[Tensor], Sweep]:
    """What decodes positions, of a run on a dataset, from its middle example by default."""
    check_decoder(run)
    source = load_data(data if data is not None else run.spec.data, run.device)
    draws = drawer(source)
    chosen = middle_example(source) if example is None else example
    source.factors([chosen])  # refuses an example that does not exist
    return lambda positions: draws(sweep(run, source, chosen, positions))


def _from_images(model: Any, x: Any, example: int | None) -> Callable[[Tensor], Sweep]:
    """What decodes positions, of any model on images, from the first of them by default."""
    if isinstance(model, Run):
        check_decoder(model)
    elif x is None or isinstance(x, str | FactorData):
        Adapter.of(model)
        raise UserError(
            f"A traversal of a {type(model).__name__} needs images x, (n, c, h, w): ub.traverse(model, x). Got {x!r} "
            "instead. Of a dataset: ub.data.load('sprites').images(range(100))."
        )
    images, chosen = as_images(x), 0 if example is None else example
    if not 0 <= chosen < len(images):
        raise UserError(f"The example must be the number of an image of x, 0 to {len(images) - 1}. Got {chosen}.")
    return lambda positions: sweep_images(model, images, chosen, positions)


def check_decoder(run: Run) -> None:
    """Refuse a run that cannot make examples from codes."""
    if run.net.decoder is None:
        raise UserError(
            f"A traversal needs a decoder; {run.label} trained an encoder only. Look at its codes instead: score them "
            "(unbraid score, ub.score), or encode examples that differ in one factor with run.encode(x)."
        )


def middle_example(data: FactorData) -> int:
    """The example in the middle of the grid, or of the rows."""
    return int(data.index([[size // 2 for size in data.sizes]])[0]) if data.gridded else len(data) // 2


def drawer(data: FactorData) -> Callable[[Sweep], Sweep]:
    """What makes pictures of decoded examples: nothing for images, the surface for meshes."""
    if len(data.shape) == 3:
        return lambda found: found
    from unbraid.pictures.dataset import has_meshes, mesh_pictures

    if not has_meshes(data):
        raise UserError(
            f"A traversal needs images or meshes; {data.name} has vectors of {data.shape[0]}. "
            "Use run.decode(z) instead."
        )

    def drawn(found: Sweep) -> Sweep:
        examples = torch.stack([found.original, found.reconstruction])
        first, again, *rest = mesh_pictures(torch.cat([examples, found.images.flatten(0, 1)]), data)
        return Sweep(torch.stack(rest).unflatten(0, found.images.shape[:2]), found.labels, first, again)

    return drawn


def _still(found: Sweep, scale: int) -> Image.Image:
    rows = [(label, list(images)) for label, images in zip(found.labels, found.images, strict=True)]
    return page([("example,\ndecoded", [found.original, found.reconstruction]), *rows], scale)


def _frames(found: Sweep, scale: int) -> list[Image.Image]:
    """One picture a position, the latents side by side in rows of five."""
    frames, names = [], [label.split("\n")[0].rpartition(" ")[2] for label in found.labels]
    for j in range(found.images.shape[1]):
        tiles = [(f"latents\n{', '.join(names[i : i + 5])}", list(found.images[i : i + 5, j]))
                 for i in range(0, len(names), 5)]  # fmt: skip
        frames.append(page(tiles, scale))
    return frames


def encode_picture(frames: list[Image.Image]) -> bytes:
    """A PNG of one picture, an endless GIF of several."""
    buffer = io.BytesIO()
    if len(frames) == 1:
        frames[0].save(buffer, "PNG")
    else:
        frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=80, loop=0)
    return buffer.getvalue()
