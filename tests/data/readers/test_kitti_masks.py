"""KITTI Masks is read correctly, and its pairs are frames of the same sequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import vmap

import unbraid as ub
from support import formats
from unbraid.data.holdout import Holdout
from unbraid.data.readers.kitti_masks import PAIRS, read_kitti_masks
from unbraid.data.sampling import consecutive_pairs
from unbraid.data.sequences import Sequences
from unbraid.errors import UserError
from unbraid.methods import PCL, PMP, AdaGVAE, AdaMLVAE, BetaVAE, ClICA, Method, SlowVAE
from unbraid.noise import Noise

LENGTHS = (2, 4, 7)
STEPS = sum(LENGTHS) - len(LENGTHS)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_masks(folder: Path, content: object, protocol: int = 3) -> Path:
    path = folder / "kitti_masks" / "kitti_peds_v2.pickle"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(formats.pickle_bytes(content, protocol))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Sequences:
    return read_kitti_masks(write_masks(tmp_path, formats.mask_sequences(LENGTHS)), pairs=STEPS, max_distance=3)


@pytest.mark.parametrize("protocol", [3, 4])
def test_masks_are_read_and_labelled_by_their_centre_and_area(tmp_path: Path, protocol: int) -> None:
    """The masks are boxes, whose centres and areas follow from their limits."""
    data = read_kitti_masks(write_masks(tmp_path, formats.mask_sequences(LENGTHS), protocol), pairs=STEPS)
    assert (len(data), data.shape, data.names, data.continuous) == (13, (1, 64, 64), ("x", "y", "area"), data.names)
    assert data.binary
    assert not data.gridded
    boxes = np.concatenate(formats.rectangles(LENGTHS)).tolist()
    for i, (top, bottom, left, right) in enumerate(boxes):
        image = np.zeros((64, 64), np.uint8)
        image[top:bottom, left:right] = 255
        assert np.array_equal(data.images([i])[0, 0], image)
        rows, columns = range(top, bottom), range(left, right)
        expected = [sum(columns) / len(columns), sum(rows) / len(rows), len(rows) * len(columns)]
        assert data.factor_values([i]).tolist()[0] == pytest.approx(expected, abs=1e-12)


def test_bins_of_the_labels_are_ordered_as_the_labels(data: Sequences) -> None:
    for values, bins, size in zip(
        data.factor_values(slice(None)).T, data.factors(slice(None)).T, data.sizes, strict=True
    ):
        assert bins.min() == 0
        assert bins.max() == size - 1
        assert (bins[values.argsort()].diff() >= 0).all()


def pair_probabilities(lengths: tuple[int, ...], max_distance: int) -> dict[tuple[int, int], float]:
    """Return the probability of each pair of frames, by loops over the frames and the distances."""
    count, start = Counter[tuple[int, int]](), 0
    for length in lengths:
        last = start + length - 1
        for first in range(start, last):
            count.update((first, min(first + distance, last)) for distance in range(1, max_distance + 1))
        start += length
    return {pair: number / count.total() for pair, number in count.items()}


@pytest.mark.parametrize("max_distance", [1, 3, 50])
def test_pairs_are_frames_of_one_sequence_with_the_documented_distribution(tmp_path: Path, max_distance: int) -> None:
    path = write_masks(tmp_path, formats.mask_sequences(LENGTHS))
    data = read_kitti_masks(path, pairs=STEPS, max_distance=max_distance)
    n, probabilities = 20_000, pair_probabilities(LENGTHS, max_distance)
    drawn = consecutive_pairs(data, Noise(torch.tensor(7)), n)
    found = Counter(map(tuple, drawn.examples.tolist()))
    assert found.keys() == probabilities.keys()
    expected = [n * probabilities[pair] for pair in probabilities]
    assert stats.chisquare([found[pair] for pair in probabilities], expected).pvalue > 1e-4
    before, after = data.factors(drawn.examples[:, 0]), data.factors(drawn.examples[:, 1])
    assert torch.equal(drawn.changed, before != after)


def test_pairs_depend_only_on_the_key_and_never_wait_for_the_device(data: Sequences) -> None:
    keys = torch.tensor([3, 4])
    alone = torch.stack([data.draw_consecutive(Noise(key), 50) for key in keys])
    assert torch.equal(vmap(lambda key: data.draw_consecutive(Noise(key), 50))(keys), alone)
    assert not torch.equal(alone[0], alone[1])
    moved = data.to("meta")  # reading a value on this device raises an error
    pairs = moved.draw_consecutive(Noise(torch.tensor(0, device="meta")), 6)
    assert moved.batch(pairs[:, 0]).shape == (6, 1, 64, 64)
    assert data.device.type == "cpu"


@pytest.mark.parametrize("method", [SlowVAE(pairs="consecutive"), PCL(pairs="consecutive"), ClICA(pairs="consecutive")])
def test_methods_for_time_series_are_trained_on_frames(data: Sequences, method: Method) -> None:
    (run,) = ub.train(method, data, steps=2, batch=8, latents=3, net="mlp", quiet=True)
    drawn = method.draw(data, Noise(torch.tensor(5)), 8).examples.view(2, 4)
    assert torch.equal(drawn.T, data.draw_consecutive(Noise(torch.tensor(5)), 4))
    assert np.isfinite(run.log[-1]["loss"])


@pytest.mark.parametrize("method", [AdaGVAE(), AdaMLVAE(), PMP(), SlowVAE(), PCL(), SlowVAE(pairs="walk")])
def test_methods_that_change_factors_refuse_frames(data: Sequences, method: Method) -> None:
    with pytest.raises(UserError, match=r"must be a full grid of factors. kitti_masks is not a full grid"):
        ub.train(method, data, steps=1, batch=8, quiet=True)


def test_a_selection_of_frames_is_not_a_time_series(data: Sequences) -> None:
    """The rows of a selection are not successive frames, so that no pairs are drawn from them."""
    method, single = SlowVAE(pairs="consecutive"), BetaVAE()
    with pytest.raises(UserError, match=r"consecutive pairs needs all rows.*Leave out validation="):
        ub.train(method, data, steps=1, batch=4, validation=0.3, quiet=True)
    ub.train(single, data, steps=1, batch=4, validation=0.3, latents=2, net="mlp", quiet=True)
    side = Holdout.parse(data, "x:0").view(data, "training")
    with pytest.raises(UserError, match=r"rows are left out or were sorted\. Leave out validation= and side="):
        method.check(side, 8, 2)
    assert not data.select_rows(slice(2, 6)).successive
    assert torch.equal(data.select_rows(slice(2, 6)).images([0]), data.images([2]))


def test_changed_images_have_the_pairs_of_their_data(data: Sequences) -> None:
    from unbraid.data.manipulated import add_fixed_noise

    noisy = add_fixed_noise(data, 0.1)
    key = torch.tensor(1)
    assert torch.equal(noisy.draw_consecutive(Noise(key), 30), data.draw_consecutive(Noise(key), 30))
    SlowVAE(pairs="consecutive").check(noisy, 8, 2)


def test_max_distance_is_positive(tmp_path: Path) -> None:
    path = write_masks(tmp_path, formats.mask_sequences(LENGTHS))
    with pytest.raises(UserError, match=r"'max_distance' of kitti_masks must be at least 1. Got 0"):
        read_kitti_masks(path, pairs=STEPS, max_distance=0)


def test_the_registered_dataset_reads_the_file_and_expects_all_frames(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"kitti_peds_v2\.pickle from https://zenodo\.org/record/3931823"):
        ub.data.load("kitti_masks", root=tmp_path)
    write_masks(tmp_path, formats.mask_sequences(LENGTHS))
    with pytest.raises(UserError, match=f"successive frames .* must be {PAIRS:,}. Got {STEPS} instead"):
        ub.data.load("kitti_masks?max_distance=1", root=tmp_path)


def change(key: str, sequence: int, to: Callable[[Any], Any]) -> Callable[[dict[str, list[Any]]], object]:
    """Return a function that changes one array of a file."""

    def apply(content: dict[str, list[Any]]) -> object:
        content[key][sequence] = to(content[key][sequence])
        return content

    return apply


MASKS, LABELS = "pedestrians", "pedestrians_latents"
WRONG: dict[str, tuple[Callable[[dict[str, list[Any]]], object], str]] = {
    "a list": (lambda c: c[MASKS], "must contain a dictionary with the lists pedestrians and pedestrians_latents"),
    "no labels": (lambda c: {MASKS: c[MASKS]}, "must contain a dictionary with the lists"),
    "an array": (lambda c: {**c, MASKS: np.zeros((2, 64, 64), bool)}, "must contain a dictionary with the lists"),
    "a sequence less": (lambda c: {**c, LABELS: c[LABELS][1:]}, "arrays of labels .* must be 3. Got 2"),
    "fewer frames": (lambda c: {key: arrays[1:] for key, arrays in c.items()}, "successive frames .* 10. Got 9"),
    "bytes": (change(MASKS, 1, lambda a: a.astype(np.uint8)), "type of the masks in sequence 1 .* bool. Got uint8"),
    "a number": (change(MASKS, 2, lambda a: 3), "type of the masks in sequence 2 .* bool. Got int"),
    "other size": (change(MASKS, 0, lambda a: a[:, :32]), r"\(64, 64\). Got \(32, 64\)"),
    "one mask": (change(MASKS, 0, lambda a: a[0]), r"\(64, 64\). Got \(64,\)"),
    "double labels": (change(LABELS, 0, lambda a: a.astype(np.float64)), "must be float32. Got float64"),
    "a label less": (change(LABELS, 1, lambda a: a[:3]), r"labels in sequence 1 .* \(4, 3\). Got \(3, 3\)"),
    "other labels": (change(LABELS, 2, lambda a: a + 0.01), "labels of sequence 2 of .* must be the centres of mass"),
    "x and y exchanged": (change(LABELS, 0, lambda a: a[:, [1, 0, 2]]), "labels of sequence 0 .* other numbers"),
    "an empty mask": (change(MASKS, 0, lambda a: a & False), "labels of sequence 0 .* other numbers"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_differ_from_the_published_one_are_refused(tmp_path: Path, store: Path, case: str) -> None:
    changed, message = WRONG[case]
    path = write_masks(tmp_path, changed(formats.mask_sequences(LENGTHS)))
    with pytest.raises(UserError, match=message):
        read_kitti_masks(path, pairs=STEPS)
    assert not list(store.glob("*.npy"))
