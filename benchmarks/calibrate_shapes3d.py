"""Fit the constants of shapes3d_rendered to original images, and print the remaining errors.

The original images are an .npz file with `images`, uint8 (n, 64, 64, 3), without labels. Hues are read from patches,
and the other factors are found by trying all of them. The outermost pixels are ignored, because a border has changed
them. Without --rounds nothing is fitted, and the errors of the current constants are printed.
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
    shapes3d_rendered,
    solid_scales,
)
from unbraid.noise import Noise

INNER = slice(1, 63)
# Of the original file: the mean of each channel, and its mean standard deviation within an image.
PUBLISHED = ((0.502585, 0.578760, 0.603450), (0.294081, 0.344398, 0.366169))
# The (step, pool) of each round of fitting; the last is repeated. Coarse first, because edges move by whole samples.
SCHEDULE = ((0.01, 2), (0.005, 1), (0.002, 1))
# Rows and columns where floor, wall and solid are visible in every image.
PATCHES = ((slice(57, 62), slice(2, 8)), (slice(20, 27), slice(2, 6)), (slice(44, 49), slice(29, 34)))


def read_hues(images: Tensor) -> Tensor:
    """Return the hues (n, 3) of floor, wall and solid as integers. The part common to all channels is gloss."""
    found = []
    for image in images:
        patches = [image[:, rows, columns].flatten(1).median(1).values for rows, columns in PATCHES]
        found.append([round(10 * colorsys.rgb_to_hsv(*(p - p.min()).tolist())[0]) % 10 for p in patches])
    return torch.tensor(found, device=images.device)


def render_images(scene: Scene, factors: Tensor) -> Tensor:
    """Return the images (n, 3, 64, 64) for rows of factors, without rounding."""
    place = factors.device
    view, colours = trace_room(scene, camera_angles().to(place), OVERSAMPLE), hue_colours(factors[:, :3]) / FIFTHS
    images = torch.zeros(len(factors), 3, 64, 64, device=place)
    for shape in range(SIZES[4]):
        rows = (factors[:, 4] == shape).nonzero()[:, 0]
        visible = Room(*(part[..., factors[rows, 5], :, :] for part in view))
        parts = render_layers(scene, visible, shape, solid_scales().to(place)[factors[rows, 3]])
        images[rows] = blend_layers(parts, *colours[rows].unbind(1))
    return images.clamp(0, 1)


def absolute_errors(ours: Tensor, real: Tensor) -> Tensor:
    """Return the mean absolute error of each image, in levels of 255."""
    return 255 * (ours - real).abs()[..., INNER, INNER].mean((-3, -2, -1))


def match_factors(scene: Scene, real: Tensor) -> Tensor:
    """Return the factors of the nearest image. All 480 combinations of scale, shape and orientation are tried."""
    colours, place = read_hues(real), real.device
    view, paint = trace_room(scene, camera_angles().to(place), OVERSAMPLE), hue_colours(colours) / FIFTHS
    table = []
    for scale in solid_scales().to(place):
        for shape in range(SIZES[4]):
            parts = render_layers(scene, view, shape, scale.expand(SIZES[5]))
            table.append(torch.stack([_errors_of_views(parts, *pair) for pair in zip(paint, real, strict=True)]))
    best = torch.cat(table, 1).argmin(1)
    return torch.cat([colours, torch.stack([best // 60, best // 15 % 4, best % 15], 1)], 1)


def _errors_of_views(parts: Tensor, colours: Tensor, image: Tensor) -> Tensor:
    """Return the error of each view in `parts`, blended with three colours, with respect to one image."""
    return absolute_errors(
        blend_layers(parts, *(colour.expand(len(parts), 3) for colour in colours)).clamp(0, 1), image
    )


def fit_scene(scene: Scene, real: Tensor, factors: Tensor, step: float, pool: int) -> Scene:
    """Fit all constants by least squares.

    Derivatives are differences with relative step `step`, and errors are averaged over `pool` x `pool` pixels.
    """
    names, start = list(asdict(scene)), np.array(list(asdict(scene).values()))
    spread = np.maximum(np.abs(start), 0.1)

    def constants(x: NDArray[np.float64]) -> Scene:
        return replace(scene, **dict(zip(names, (start + spread * (x - 1)).tolist(), strict=True)))

    def residual(x: NDArray[np.float64]) -> NDArray[np.float64]:
        error = (render_images(constants(x), factors) - real)[..., INNER, INNER]
        flat: NDArray[np.float64] = torch.nn.functional.avg_pool2d(error, pool).flatten().double().cpu().numpy()
        return flat

    found = least_squares(residual, np.ones(len(names)), diff_step=step, max_nfev=8)
    return constants(found.x)


def write_sheet(strips: list[Tensor], path: Path, columns: int = 10, zoom: int = 3) -> None:
    """Write a PNG of images in rows of `columns`, in which the rows of the strips alternate."""
    from PIL import Image

    rows = [torch.cat(list(row), -1) for rows in zip(*(s.split(columns) for s in strips), strict=True) for row in rows]
    pixels = (255 * torch.cat(rows, 1)).round().byte().permute(1, 2, 0).cpu().numpy()
    Image.fromarray(pixels).resize((pixels.shape[1] * zoom, pixels.shape[0] * zoom), Image.Resampling.NEAREST).save(
        path
    )


def print_errors(scene: Scene, real: Tensor) -> Tensor:
    """Print the error of each image, the mean and the largest error, and return our images."""
    factors = match_factors(scene, real)
    ours = (255 * render_images(scene, factors)).round() / 255
    error = absolute_errors(ours, real)
    for i, (row, e) in enumerate(zip(factors.tolist(), error.tolist(), strict=True)):
        print(f"image {i:2d}: factors {row}, error {e:.2f}")
    print(f"error in levels of 255: mean {error.mean():.3f}, largest {error.max():.3f}, over {len(real)} images")
    return ours


def print_statistics(sample: int, device: str) -> None:
    """Print the mean of each channel and its standard deviation within an image, averaged over `sample` images.

    The images are drawn without repetition. If `sample` is 0, all images are used.
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
    """Fit if requested, print constants and errors, and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tiles", type=Path, help="an .npz file of original images")
    parser.add_argument("--out", type=Path, help="a PNG to write, with original images above ours")
    parser.add_argument("--picture", type=Path, help="a PNG to write, with 50 random images of ours")
    parser.add_argument(
        "--rounds", type=int, default=0, help="number of rounds of matching factors and fitting constants"
    )
    parser.add_argument("--sample", type=int, default=20_000, help="images for the statistics; 0 uses all")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    real = torch.from_numpy(np.load(options.tiles)["images"]).permute(0, 3, 1, 2).to(options.device) / 255
    scene = SCENE
    for turn in range(options.rounds):
        scene = fit_scene(scene, real, match_factors(scene, real), *SCHEDULE[min(turn, len(SCHEDULE) - 1)])
        print(f"round {turn + 1}: {scene}", flush=True)
    ours = print_errors(scene, real)
    if options.out:
        write_sheet([real, ours], options.out)
    if options.picture:
        data = shapes3d_rendered()
        write_sheet([data.batch(data.draw(Noise(torch.tensor(0)), 50))], options.picture)
    print_statistics(options.sample, options.device)


if __name__ == "__main__":
    main()
