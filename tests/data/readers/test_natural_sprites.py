"""Natural Sprites: the transitions are read, and the sprites are drawn where they were measured."""

from __future__ import annotations

import cmath
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import vmap

import unbraid as ub
from support import formats
from support.formats import Array, Measurement
from unbraid.data.readers.natural_sprites import (
    PAIRS,
    SIZES,
    bin_values,
    leave_out_outliers,
    read_natural_grid,
    read_natural_sprites,
    read_transitions,
)
from unbraid.data.rendered.spriteworld import ANGLES, SHAPES, Renderer, outline, polygon_area
from unbraid.data.sampling import consecutive_pairs
from unbraid.data.sequences import GridWithTransitions, Sequences
from unbraid.errors import UserError
from unbraid.methods import PCL, AdaGVAE, Method, SlowVAE
from unbraid.noise import Noise

OBJECTS = formats.moving_objects(20)
SMALL = (4, 3, 2, 3, 4)  # sizes of a small grid


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_csv(folder: Path, text: str) -> Path:
    path = folder / "natural_sprites" / "downscale_keepaspect.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, newline="")
    return path


def transitions_by_loops(objects: list[list[list[Measurement] | None]]) -> list[list[list[float]]]:
    """Return x, y and area before and after every step of every window that has both."""
    found = []
    for frames in objects:
        for t in range(len(frames) - 1):
            before, after = frames[t], frames[t + 1]
            for window in range(3):
                if before and after and before[window] and after[window]:
                    pair = [before[window], after[window]]
                    found.append([[m[1], m[0], m[2]] for m in pair if m is not None])
    return found


EXPECTED = transitions_by_loops(OBJECTS)


def test_transitions_are_the_steps_of_each_window(tmp_path: Path) -> None:
    path = write_csv(tmp_path, formats.transitions_csv(OBJECTS))
    assert 20 < len(EXPECTED) < 20 * 3 * 3
    assert read_transitions(path, len(EXPECTED)).tolist() == EXPECTED


def test_frames_without_the_object_separate_transitions(tmp_path: Path) -> None:
    """Of four frames, the second has no object in the first window, and the third has no object at all."""
    there: Measurement = (1.5, 2.5, 30)
    frames: list[list[Measurement] | None] = [
        [there, None, there], [None, None, (3.0, 4e-05, 31)], None, [there, there, there],
    ]  # fmt: skip
    path = write_csv(tmp_path, formats.transitions_csv([frames]))
    assert read_transitions(path, 1).tolist() == [[[2.5, 1.5, 30], [4e-05, 3.0, 31]]]


def test_outliers_are_the_smallest_and_largest_areas_of_either_frame() -> None:
    """With areas 1 to 21, the quantiles 0.05 and 0.95 are 2 and 20, and these two are no outliers."""
    transitions = np.zeros((21, 2, 3))
    transitions[:, 0, 2] = np.arange(1, 22)
    transitions[:, 1, 2] = 5 * np.roll(np.arange(1, 22), 3)
    kept = leave_out_outliers(transitions, 0.1)
    assert set(kept[:, 0, 2].tolist()) == set(range(2, 21)) - {4, 3}  # areas 21 and 1 after the transition
    assert kept[:, 1, 2].min() == 10
    assert kept[:, 1, 2].max() == 100


def test_bins_have_equal_width_and_the_nearest_centre() -> None:
    values = np.random.default_rng(0).gamma(2, size=(50, 2))
    centres, index = bin_values(values, 7)
    edges = np.histogram(values, bins=7)[1]
    assert np.allclose(centres, (edges[1:] + edges[:-1]) / 2)
    for value, bin_ in zip(values.ravel(), index.ravel(), strict=True):
        assert bin_ == min(range(7), key=lambda i: abs(value - centres[i]))


def corners_by_hand(shape: str) -> list[complex]:
    """Return the vertices of a shape of area 1, anticlockwise, as complex numbers."""
    r, d = math.sqrt(0.5), math.sqrt(0.5) + 1
    cross = [(d, -r), (d, r), (r, r), (r, d), (-r, d), (-r, r), (-d, r), (-d, -r), (-r, -r), (-r, -d), (r, -d), (r, -r)]
    points = {
        "square": [complex(x, y) for x, y in ((0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5), (0.5, -0.5))],
        "triangle": [cmath.rect(1, math.radians(a)) for a in (90, 210, 330)],
        "star_4": [cmath.rect(1 if k % 2 else 2, math.radians(45 * k)) for k in range(8)],
        "spoke_4": [complex(x, y) for x, y in cross],
    }[shape]
    areas = {"square": 1, "triangle": 3 * math.sqrt(3) / 4, "star_4": 4 * math.sqrt(2), "spoke_4": 2 + 4 * math.sqrt(2)}
    return [point / math.sqrt(areas[shape]) for point in points]


def is_inside(point: complex, corners: list[complex]) -> bool:
    """Return whether a point is inside a polygon, by the sum of the angles at which it sees the edges."""
    turns = [cmath.phase((b - point) / (a - point)) for a, b in zip(corners, corners[1:] + corners[:1], strict=True)]
    return abs(sum(turns)) > math.pi


@pytest.mark.parametrize("shape", SHAPES)
def test_outlines_have_area_1_and_the_corners_of_their_shape(shape: str) -> None:
    assert polygon_area(outline(shape)) == pytest.approx(1)
    expected = [[point.real, point.imag] for point in corners_by_hand(shape)]
    found = outline(shape)
    assert len(found) == len(expected)
    assert all(np.abs(found - point).sum(1).min() < 1e-12 for point in expected)


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize(("x", "y", "scale", "angle"), [(0.4, 0.7, 0.3, 0), (0.6, 0.3, 0.2, 3), (0.1, 0.95, 0.35, 17)])
def test_images_agree_with_the_share_of_each_pixel_that_is_inside(
    x: float, y: float, scale: float, angle: int, shape: int
) -> None:
    """The oracle tests 16 points per pixel. y increases upwards, and angles are anticlockwise turns by 9 degrees."""
    image = Renderer().draw(x, y, scale, angle, shape)
    turn = cmath.rect(64 * scale, math.radians(9 * angle))
    corners = [complex(64 * x, 64 * y) + turn * corner for corner in corners_by_hand(SHAPES[shape])]
    expected = np.zeros((64, 64))
    offsets = [(i + 0.5) / 4 for i in range(4)]
    reach = 2 + max(abs(corner - complex(64 * x, 64 * y)) for corner in corners)
    for row, column in np.ndindex(64, 64):
        height = 64 - row  # of the upper edge of this row of pixels
        if abs(complex(column - 64 * x, height - 64 * y)) < reach:
            points = [complex(column + a, height - b) for a in offsets for b in offsets]
            expected[row, column] = sum(is_inside(point, corners) for point in points) / len(points)
    assert expected.sum() > 50
    assert np.abs(image / 255 - expected).mean() < 0.01
    assert np.corrcoef(image.ravel(), expected.ravel())[0, 1] > 0.99


def test_a_part_of_the_canvas_is_reduced_as_the_whole_canvas_is() -> None:
    from PIL import Image, ImageDraw

    rng, renderer = np.random.default_rng(0), Renderer()
    for _ in range(60):
        x, y = rng.uniform(-0.1, 1.1, 2)
        scale, angle, shape = rng.uniform(0.02, 0.7), int(rng.integers(ANGLES)), int(rng.integers(len(SHAPES)))
        canvas = Image.new("L", (320, 320))
        points = 320 * (scale * renderer.outlines[angle][shape] + (x, y))
        ImageDraw.Draw(canvas).polygon([tuple(point) for point in points.tolist()], fill=255)
        whole = np.asarray(canvas.resize((64, 64), Image.Resampling.LANCZOS))[::-1]
        assert np.array_equal(renderer.draw(x, y, scale, angle, shape), whole)


def measure(images: Array) -> Array:
    """Return x, y and scale of images (n, 1, 64, 64), from their centres of mass and their brightness."""
    light = images[:, 0] / 255
    total = light.sum((1, 2))
    x = (light.sum(1) @ (np.arange(64) + 0.5)) / total / 64
    y = 1 - (light.sum(2) @ (np.arange(64) + 0.5)) / total / 64
    return np.stack([x, y, np.sqrt(total) / 64], 1)


@pytest.fixture
def sprites(tmp_path: Path) -> Sequences:
    return read_natural_sprites(write_csv(tmp_path, formats.transitions_csv(OBJECTS)), pairs=len(EXPECTED))


@pytest.fixture
def grid(tmp_path: Path) -> GridWithTransitions:
    return read_natural_grid(write_csv(tmp_path, formats.transitions_csv(OBJECTS)), len(EXPECTED), SMALL)


def kept_transitions() -> Array:
    return leave_out_outliers(np.array(EXPECTED, np.float64))


def test_sprites_have_the_measured_positions_and_areas(sprites: Sequences) -> None:
    kept = kept_transitions()
    assert 10 < len(kept) < len(EXPECTED)
    assert (len(sprites), sprites.shape) == (2 * len(kept), (1, 64, 64))
    assert sprites.names == ("x", "y", "scale", "angle", "shape")
    assert sprites.continuous == ("x", "y", "scale")
    values = sprites.factor_values(slice(None)).numpy()
    x, y, area = kept.reshape(-1, 3).T
    assert np.allclose(values[:, :3], np.stack([x / 64, y / 64, np.sqrt(area) / 64], 1))
    found = measure(sprites.images(slice(None)).numpy())
    assert np.abs(found - values[:, :3]).max() < 0.012  # a border is drawn too, which adds up to 1/5 pixel
    for i in (0, 5):
        image = Renderer().draw(*values[i, :3], *map(int, values[i, 3:]))
        assert np.array_equal(sprites.images([i])[0, 0], image)


def test_both_images_of_a_transition_have_the_same_angle_and_shape(sprites: Sequences) -> None:
    values = sprites.factor_values(slice(None))[:, 3:]
    assert torch.equal(values[::2], values[1::2])
    assert torch.equal(values, sprites.factors(slice(None))[:, 3:].double())
    assert len(values[::2, 0].unique()) > 5
    assert sprites.factors(slice(None))[:, 4].unique().tolist() == [0, 1, 2, 3]


def test_pairs_of_the_continuous_variant_are_the_transitions(sprites: Sequences) -> None:
    n, m = 20_000, len(sprites) // 2
    examples = consecutive_pairs(sprites, Noise(torch.tensor(2)), n).examples
    assert torch.equal(examples[:, 1], examples[:, 0] + 1)
    assert (examples[:, 0] % 2 == 0).all()
    assert stats.chisquare(np.bincount(examples[:, 0] // 2, minlength=m)).pvalue > 1e-4


def test_images_of_the_grid_are_sprites_at_the_centres_of_bins(grid: GridWithTransitions) -> None:
    assert grid.gridded
    assert (len(grid), grid.sizes, grid.name) == (math.prod(SMALL), SMALL, "natural_sprites?variant=discrete")
    centres = [bin_values(kept_transitions()[..., j], SMALL[j])[0] for j in range(3)]
    renderer = Renderer()
    for cell in ([0, 0, 0, 0, 0], [3, 2, 1, 2, 3], [1, 2, 0, 1, 2]):
        x, y, area = (values[i] for values, i in zip(centres, cell, strict=False))
        image = renderer.draw(x / 64, y / 64, math.sqrt(area) / 64, *cell[3:])
        assert np.array_equal(grid.images(grid.index([cell]))[0, 0], image)


def test_pairs_of_the_grid_are_binned_transitions_with_any_angle_and_shape(grid: GridWithTransitions) -> None:
    kept, n = kept_transitions(), 40_000
    index = [bin_values(kept[..., j], SMALL[j])[1].tolist() for j in range(3)]
    count = Counter(
        (tuple(column[i][0] for column in index), tuple(column[i][1] for column in index)) for i in range(len(kept))
    )
    drawn = consecutive_pairs(grid, Noise(torch.tensor(4)), n)
    before, after = (grid.factors(column) for column in drawn.examples.T)
    assert torch.equal(before[:, 3:], after[:, 3:])
    others = np.bincount(before[:, 3] * SMALL[4] + before[:, 4], minlength=SMALL[3] * SMALL[4])
    assert stats.chisquare(others).pvalue > 1e-4
    found = Counter(zip(map(tuple, before[:, :3].tolist()), map(tuple, after[:, :3].tolist()), strict=True))
    assert found.keys() == count.keys()
    expected = [n * count[pair] / len(kept) for pair in count]
    assert stats.chisquare([found[pair] for pair in count], expected).pvalue > 1e-4


def test_pairs_of_the_grid_depend_only_on_the_key(grid: GridWithTransitions) -> None:
    keys = torch.tensor([3, 4])
    alone = torch.stack([grid.draw_consecutive(Noise(key), 50) for key in keys])
    assert torch.equal(vmap(lambda key: grid.draw_consecutive(Noise(key), 50))(keys), alone)
    moved = grid.to("meta")
    assert moved.draw_consecutive(Noise(torch.tensor(0, device="meta")), 6).shape == (6, 2)


@pytest.mark.parametrize("method", [SlowVAE(pairs="consecutive"), PCL(pairs="consecutive")])
def test_methods_for_time_series_are_trained_on_transitions(
    sprites: Sequences, grid: GridWithTransitions, method: Method
) -> None:
    for data in (sprites, grid):
        (run,) = ub.train(method, data, steps=2, batch=8, latents=3, net="mlp", quiet=True)
        assert np.isfinite(run.log[-1]["loss"])


def test_methods_that_change_factors_need_the_discrete_variant(sprites: Sequences, grid: GridWithTransitions) -> None:
    with pytest.raises(UserError, match=r"not a full grid. Use natural_sprites\?variant=discrete"):
        AdaGVAE().check(sprites, 8, 4)
    AdaGVAE().check(grid, 8, 4)
    SlowVAE().check(grid, 8, 4)


def test_the_registered_dataset_reads_the_file_and_expects_all_transitions(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"downscale_keepaspect\.csv from https://zenodo\.org/record/3948069"):
        ub.data.load("natural_sprites", root=tmp_path)
    write_csv(tmp_path, formats.transitions_csv(OBJECTS))
    for name in ("natural_sprites", "natural_sprites?variant=discrete"):
        with pytest.raises(UserError, match=f"transitions .* must be {PAIRS:,}. Got {len(EXPECTED)} instead"):
            ub.data.load(name, root=tmp_path)
    with pytest.raises(UserError, match=r"variant of natural_sprites.*continuous, discrete"):
        ub.data.load("natural_sprites?variant=grid", root=tmp_path)
    assert SIZES == (32, 32, 6, 40, 4)


VALID = "[(1.5, 2.5, 30), None, (3.0, 4.0, 31)]"
WRONG: dict[str, tuple[str, str]] = {
    "empty": ("", "beginning of the first row .* must be id,cat_id,t_0. Got  instead"),
    "page of text": ("<html>\n<body>\n", "beginning of the first row .* Got <html>"),
    "two windows": ("[(1.5, 2.5, 30), None]", "row 2 of .* 3 entries None or"),
    "a number": ("3", "row 2 of .* 3 entries None or"),
    "no area": (VALID.replace(", 30", ""), "row 2 of .* 3 entries None or"),
    "text for a number": (VALID.replace("1.5", '"1.5"'), "row 2 of .* 3 entries None or"),
    "not a number": (VALID.replace("1.5", "NaN"), "row 2 of .* 3 entries None or"),
    "outside": (VALID.replace("1.5", "64.5"), "row 2 of .* positions from 0 to 64"),
    "no pixel": (VALID.replace("30", "0"), "row 2 of .* areas from 1 to 4096"),
    "too many pixels": (VALID.replace("30", "4097"), "row 2 of .* areas from 1 to 4096"),
    "true": (VALID.replace("30", "true"), "row 2 of .* 3 entries None or"),
    "a call": ("__import__('os').system('touch marker')", "must be a complete csv file"),
    "cut": (VALID[:-4], "must be a complete csv file"),
    "nested": ("[" * 100_000, "must be a complete csv file"),
    "a transition less": ("", "number of transitions .* must be 2. Got 0"),
    "bytes that are not text": (VALID.replace("None", "N\xf6ne"), "must be a complete csv file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_differ_from_the_published_one_are_refused(tmp_path: Path, store: Path, case: str) -> None:
    cell, message = WRONG[case]
    rows = f'id,cat_id,t_0,t_1\n1,26,"{VALID}","{cell.replace(chr(34), chr(34) * 2)}"\n'
    path = write_csv(tmp_path, cell if case in ("empty", "page of text") else rows)
    with pytest.raises(UserError, match=message):
        read_natural_sprites(path, pairs=2)
    assert not list(store.glob("*.npy"))


def test_the_row_of_the_cases_above_is_valid(tmp_path: Path) -> None:
    path = write_csv(tmp_path, f'id,cat_id,t_0,t_1\n1,26,"{VALID}","{VALID}"\n')
    assert read_transitions(path, pairs=2).tolist() == [[[2.5, 1.5, 30]] * 2, [[4, 3, 31]] * 2]
