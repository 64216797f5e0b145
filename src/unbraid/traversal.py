"""Pictures of what each latent does: move one, hold the others, decode."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from unbraid.data.base import FactorData
from unbraid.encoding import encode_table
from unbraid.errors import Refusal
from unbraid.files import make_folder, write_atomic
from unbraid.run import Run
from unbraid.training import load_data

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


@torch.no_grad()
def sweep(run: Run, data: FactorData, example: int, positions: Tensor) -> Sweep:
    """Decode what the method walks through from one example (`Method.walk`): by default each latent in turn."""
    spread = torch.linspace(0, len(data) - 1, min(EXAMPLES, len(data)), device=data.device).long()
    x = data.batch(torch.tensor([example], device=data.device))
    walk = run.spec.method.walk(run.net, run.net.encode(x), encode_table(run, data, spread), positions)
    images = run.decode(walk.z.flatten(0, 1)).unflatten(0, walk.z.shape[:2])
    return Sweep(images.cpu(), walk.labels, x[0].cpu(), run.decode(walk.start)[0].cpu())


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


def traverse(
    run: Run,
    data: str | FactorData | None = None,
    *,
    example: int | None = None,
    span: float = 2.0,
    columns: int = 9,
    out: str | Path | None = None,
) -> tuple[Path, Path]:
    """Write `traversal.png` (a row a latent) and `traversal.gif` (all latents swinging) and return their paths.

    Rows are sorted by how many nats the latent carries; positions run from -span to span. The first row shows the
    example and its reconstruction.
    """
    if run.net.decoder is None:
        raise Refusal(
            f"A traversal needs a decoder; {run.label} trained an encoder only. Look at its codes instead: score them "
            "(unbraid score, ub.score), or encode examples that differ in one factor with run.encode(x)."
        )
    source = load_data(data if data is not None else run.spec.data, run.device)
    draws = _drawer(source)
    folder = Path(out) if out is not None else run.path
    if folder is None:
        raise Refusal("A run that was trained without a folder needs one for its pictures: pass out=.")
    if columns < 2 or not span > 0:
        raise ValueError(f"A traversal needs at least 2 columns and a span above 0. Got {columns} and {span} instead.")
    make_folder(folder)
    if example is None:
        middle = [[size // 2 for size in source.sizes]]
        example = int(source.index(middle)[0]) if source.gridded else len(source) // 2
    source.factors([example])  # refuses an example that does not exist
    still = draws(sweep(run, source, example, torch.linspace(-span, span, columns)))
    scale = max(1, 64 // still.images.shape[3])
    png, gif = folder / "traversal.png", folder / "traversal.gif"
    write_atomic(png, encode_picture([_still(still, scale)]))
    swing = span * torch.sin(torch.linspace(0, 2 * np.pi, FRAMES + 1)[:-1])
    write_atomic(gif, encode_picture(_frames(draws(sweep(run, source, example, swing)), scale)))
    return png, gif


def _drawer(data: FactorData) -> Callable[[Sweep], Sweep]:
    """What makes pictures of decoded examples: nothing for images, the surface for meshes."""
    if len(data.shape) == 3:
        return lambda found: found
    from unbraid.gallery import has_meshes, mesh_pictures

    if not has_meshes(data):
        raise Refusal(
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
