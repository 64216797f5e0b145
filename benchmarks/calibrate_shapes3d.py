"""Fit the constants of shapes3d_rendered to real images, and show how near it comes.

The images are an .npz with `images`, uint8 (n, 64, 64, 3), without labels: hues are read off patches, the other factors
found by trying all. Their outermost pixels are left out, which a border has touched. Without --rounds nothing is fitted
and the constants in the source are judged.
"""

from __future__ import annotations

import argparse
import colorsys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import least_squares
from torch import Tensor

from unbraid.data.rendered.raycast import Room, Scene, blend_layers, render_layers, trace_room
from unbraid.data.rendered.shapes3d_rendered import (
    FIFTHS,
    OVERSAMPLE,
    SCENE,
    SIZES,
    camera_angles,
    hue_colours,
    solid_scales,
    shapes3d_rendered,
)
from unbraid.noise import Noise

INNER = slice(1, 63)
# Of the original file: the mean of each channel, and its standard deviation within an image, averaged over all images.
PUBLISHED = ((0.502585, 0.578760, 0.603450), (0.294081, 0.344398, 0.366169))
# The (step, pool) of each round of fitting; the last goes on. Coarse first, for edges move by whole samples.
SCHEDULE = ((0.01, 2), (0.005, 1), (0.002, 1))
# Where floor, wall and solid are in every image: rows, columns.
PATCHES = ((slice(57, 62), slice(2, 8)), (slice(20, 27), slice(2, 6)), (slice(44, 49), slice(29, 34)))


def hues(images: Tensor) -> Tensor:
    """The hue of floor, wall and solid as (n, 3) integers; what is common to the channels is gloss."""
    found = []
    for image in images:
        patches = [image[:, rows, columns].flatten(1).median(1).values for rows, columns in PATCHES]
        found.append([round(10 * colorsys.rgb_to_hsv(*(p - p.min()).tolist())[0]) % 10 for p in patches])
    return torch.tensor(found, device=images.device)


def draw(scene: Scene, factors: Tensor) -> Tensor:
    """The images (n, 3, 64, 64) of rows of factors, not rounded."""
    place = factors.device
    view, colours = trace_room(scene, camera_angles().to(place), OVERSAMPLE), hue_colours(factors[:, :3]) / FIFTHS
    images = torch.zeros(len(factors), 3, 64, 64, device=place)
    for shape in range(SIZES[4]):
        rows = (factors[:, 4] == shape).nonzero()[:, 0]
        seen = Room(*(part[..., factors[rows, 5], :, :] for part in view))
        parts = render_layers(scene, seen, shape, solid_scales().to(place)[factors[rows, 3]])
        images[rows] = blend_layers(parts, *colours[rows].unbind(1))
    return images.clamp(0, 1)


def errors(ours: Tensor, real: Tensor) -> Tensor:
    """The mean absolute error of each image, in levels of 255."""
    return 255 * (ours - real).abs()[..., INNER, INNER].mean((-3, -2, -1))


def match(scene: Scene, real: Tensor) -> Tensor:
    """The factors of the nearest image, scale, shape and orientation by trying all 480."""
    colours, place = hues(real), real.device
    view, paint = trace_room(scene, camera_angles().to(place), OVERSAMPLE), hue_colours(colours) / FIFTHS
    table = []
    for scale in solid_scales().to(place):
        for shape in range(SIZES[4]):
            parts = render_layers(scene, view, shape, scale.expand(SIZES[5]))
            table.append(torch.stack([_misfit(parts, *pair) for pair in zip(paint, real, strict=True)]))
    best = torch.cat(table, 1).argmin(1)
    return torch.cat([colours, torch.stack([best // 60, best // 15 % 4, best % 15], 1)], 1)


def _misfit(parts: Tensor, colours: Tensor, image: Tensor) -> Tensor:
    """The error of each of the views in `parts`, painted in three colours, against one image."""
    return errors(blend_layers(parts, *(colour.expand(len(parts), 3) for colour in colours)).clamp(0, 1), image)


def fit(scene: Scene, real: Tensor, factors: Tensor, step: float, pool: int) -> Scene:
    """Least squares over all constants at once; slopes by differences of `step`, errors averaged over `pool` pixels."""
    names, start = list(asdict(scene)), np.array(list(asdict(scene).values()))
    spread = np.maximum(np.abs(start), 0.1)

    def constants(x: NDArray[np.float64]) -> Scene:
        return replace(scene, **dict(zip(names, (start + spread * (x - 1)).tolist(), strict=True)))

    def residual(x: NDArray[np.float64]) -> NDArray[np.float64]:
        error = (draw(constants(x), factors) - real)[..., INNER, INNER]
        flat: NDArray[np.float64] = torch.nn.functional.avg_pool2d(error, pool).flatten().double().cpu().numpy()
        return flat

    found = least_squares(residual, np.ones(len(names)), diff_step=step, max_nfev=8)
    return constants(found.x)


def sheet(strips: list[Tensor], path: Path, columns: int = 10, zoom: int = 3) -> None:
    """A PNG of images in rows of `columns`, the strips' rows in turn below each other."""
    from PIL import Image

    rows = [torch.cat(list(row), -1) for rows in zip(*(s.split(columns) for s in strips), strict=True) for row in rows]
    pixels = (255 * torch.cat(rows, 1)).round().byte().permute(1, 2, 0).cpu().numpy()
    Image.fromarray(pixels).resize((pixels.shape[1] * zoom, pixels.shape[0] * zoom), Image.Resampling.NEAREST).save(
        path
    )


def report(scene: Scene, real: Tensor) -> Tensor:
    """Print the errors by image, their mean and greatest; return our images."""
    factors = match(scene, real)
    ours = (255 * draw(scene, factors)).round() / 255
    error = errors(ours, real)
    for i, (row, e) in enumerate(zip(factors.tolist(), error.tolist(), strict=True)):
        print(f"image {i:2d}: factors {row}, error {e:.2f}")
    print(f"error in levels of 255: mean {error.mean():.3f}, greatest {error.max():.3f}, over {len(real)} images")
    return ours


def statistics(sample: int, device: str) -> None:
    """Print the mean of each channel and its standard deviation within an image, averaged over `sample` images.

    The images are drawn without repetition; 0 takes all.
    """
    data = shapes3d_rendered(device)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[: sample or None].to(device)
    sums = torch.zeros(2, 3, dtype=torch.float64, device=device)
    for part in order.split(256):
        pixels = data.batch(part).flatten(2).double()
        sums += torch.stack([pixels.mean(2), pixels.std(2, correction=0)]).sum(1)
    for name, ours, theirs in zip(("means", "deviations"), (sums / len(order)).tolist(), PUBLISHED, strict=True):
        print(f"channel {name} over {len(order):,} images: {[round(x, 4) for x in ours]}, published {list(theirs)}")


def main() -> None:
    """Fit if asked to, print constants and figures, write the sheets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tiles", type=Path, help="an .npz of real images")
    parser.add_argument("--out", type=Path, help="where to write real images above ours, a PNG")
    parser.add_argument("--picture", type=Path, help="where to write 50 of our images drawn at random, a PNG")
    parser.add_argument("--rounds", type=int, default=0, help="how often to match factors and fit constants in turn")
    parser.add_argument("--sample", type=int, default=20_000, help="images for the statistics; 0 takes all")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    real = torch.from_numpy(np.load(options.tiles)["images"]).permute(0, 3, 1, 2).to(options.device) / 255
    scene = SCENE
    for turn in range(options.rounds):
        scene = fit(scene, real, match(scene, real), *SCHEDULE[min(turn, len(SCHEDULE) - 1)])
        print(f"round {turn + 1}: {scene}", flush=True)
    ours = report(scene, real)
    if options.out:
        sheet([real, ours], options.out)
    if options.picture:
        data = shapes3d_rendered()
        sheet([data.batch(data.draw(Noise(torch.tensor(0)), 50))], options.picture)
    statistics(options.sample, options.device)


if __name__ == "__main__":
    main()
