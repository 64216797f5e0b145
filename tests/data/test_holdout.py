"""Splits by combinations of factors: what is held out, what training draws, and the two sides as datasets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unbraid as ub
from unbraid.data import load
from unbraid.data.dataset import FactorData
from unbraid.data.holdout import PUBLISHED, SIDES, SPLITS, Holdout, split_conditions
from unbraid.data.sampling import PAIRS
from unbraid.errors import UserError
from unbraid.methods import METHODS
from unbraid.noise import Noise

NAMES = ("toy", "sprites")


def drawn(data: FactorData, n: int = 20_000) -> torch.Tensor:
    return data.draw(Noise(torch.tensor(0)), n)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", NAMES)
def test_training_draws_every_example_of_its_side_and_no_other(name: str, split: str) -> None:
    data = load(f"{name}?holdout={split}")
    assert data.holdout is not None
    sides = {side: set(data.holdout.rows(data, side).tolist()) for side in SIDES}
    assert not sides["training"] & sides["heldout"]
    assert sides["training"] | sides["heldout"] == set(range(len(data)))
    found = drawn(data, 100_000).unique().tolist()
    assert set(found) <= sides["training"]
    assert len(found) > 0.99 * len(sides["training"])


@pytest.mark.parametrize("name", NAMES)
def test_recombination_leaves_out_combinations_and_extrapolation_leaves_out_values(name: str) -> None:
    """In training every factor has all values, except the factor of extrapolation, of which half is missing."""
    for split in SPLITS:
        data = load(f"{name}?holdout={split}")
        factors = data.factors(data.holdout.rows(data, "training"))  # type: ignore[union-attr]
        missing = [size - len(column.unique()) for size, column in zip(data.sizes, factors.unbind(1), strict=True)]
        longest = int(np.argmax(data.sizes))
        assert missing == [
            data.sizes[j] // 2 if split == "extrapolation" and j == longest else 0 for j in range(len(missing))
        ]


def test_general_rule_by_hand() -> None:
    toy, sprites = load("toy"), load("sprites")
    assert split_conditions(toy, "extrapolation") == "a:4-7"
    assert split_conditions(toy, "range") == "d:3+a:4-7"
    assert split_conditions(toy, "element") == "a:4-7+b:3-5+c:3-4+d:2-3"
    assert split_conditions(sprites, "range") == "shape:2+x:8-15"
    assert split_conditions(sprites, "element") == "shape:2+scale:2+orientation:4-7+x:8-15+y:4-7"


def test_published_splits_of_dsprites_by_their_values() -> None:
    """The conditions of Montero et al. on the values of dSprites: x and y from 0 to 1, angles from 0 to 2 pi."""
    (key, splits) = next(iter(PUBLISHED.items()))
    values = {"scale": np.linspace(0.5, 1, 6).round(6), "orientation": np.linspace(0, 2 * np.pi, 40).round(6)}
    values |= {"x": np.linspace(0, 1, 32), "y": np.linspace(0, 1, 32)}
    third = round(2 * np.pi / 3, 6)
    want = {
        "element": {
            "scale": values["scale"] > 0.6,
            "orientation": (values["orientation"] > third) & (values["orientation"] < 2 * third),
            "x": values["x"] > 0.66,
            "y": values["y"] > 0.66,
        },
        "range": {"x": values["x"] > 0.5},
        "extrapolation": {"x": values["x"] > 0.5},
    }
    for split, conditions in want.items():
        parts = dict(part.split(":") for part in splits[split].split("+"))
        assert parts.pop("shape", None) == {"element": "1", "range": "0"}.get(split)  # an ellipse, a square
        held = {name: np.arange(*(int(end) for end in text.split("-"))) for name, text in parts.items()}
        for name, mask in conditions.items():
            assert [*held.pop(name), int(parts[name].split("-")[1])] == np.flatnonzero(mask).tolist()
        assert not held
    assert [size for _, size in key] == list(load("dsprites").sizes)


@pytest.mark.parametrize("key", PUBLISHED)
def test_published_conditions_fit_their_datasets(key: tuple[tuple[str, int], ...]) -> None:
    for text in PUBLISHED[key].values():
        for part in text.split("+"):
            name, _, values = part.partition(":")
            assert int(values.split("-")[-1]) < dict(key)[name]


@pytest.mark.parametrize("method", ["vae", "beta_tcvae", "semi_vae", "ivae", "ice_beem", "triplet_vae"])
def test_no_method_draws_held_out_examples(method: str) -> None:
    data = load("toy?holdout=range")
    examples = METHODS[method]().draw(data, Noise(torch.tensor(0)), 600).examples
    assert not data.holdout.mask(data.factors(examples)).any()  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "consecutive"])
def test_pairs_would_leave_the_training_side(name: str) -> None:
    options = {"shared": ["a"]} if name == "sharing" else {}
    with pytest.raises(UserError, match=r"Got toy\?holdout=range instead.*Remove the options subset and holdout"):
        PAIRS[name](load("toy?holdout=range"), Noise(torch.tensor(0)), 8, **options)


def test_conditions_and_other_options() -> None:
    data = load("toy?holdout=a:0-2+c:4&subset=60&correlate=a:b:0.3")
    held = (data.factors(slice(None))[:, 0] <= 2) & (data.factors(slice(None))[:, 2] == 4)
    assert torch.equal(data.holdout.mask(data.factors(slice(None))), held)  # type: ignore[union-attr]
    found = drawn(data).unique()
    assert len(found) <= 60
    assert not held[found].any()
    assert len(drawn(load("toy?holdout=a:0-2&subset=7")).unique()) == 7
    noisy = load("sprites?holdout=range&noise=0.1")
    assert not noisy.holdout.mask(noisy.factors(drawn(noisy, 500))).any()  # type: ignore[union-attr]


@pytest.mark.parametrize("name", NAMES)
def test_a_side_has_the_examples_and_labels_of_the_whole(name: str) -> None:
    whole = load(f"{name}?holdout=range")
    for side in SIDES:
        view = load(f"{name}?holdout=range&side={side}")
        rows = whole.holdout.rows(whole, side)  # type: ignore[union-attr]
        columns = [whole.names.index(factor) for factor in view.names]
        index = torch.tensor([0, 5, len(view) - 1])
        assert len(view) == len(rows)
        assert torch.equal(view.images(index), whole.images(rows[index]))
        assert torch.equal(view.batch(index), whole.batch(rows[index]))
        assert torch.equal(view.factors(index), whole.factors(rows[index])[:, columns])
        assert torch.equal(view.factor_values(index), view.factors(index).double())
        assert drawn(view, 200_000).unique().tolist() == list(range(len(view)))
        assert all(len(column.unique()) > 1 for column in view.factors(slice(None)).unbind(1))
        assert view.to("meta").device.type == "meta"
    missing = set(whole.names) - set(view.names)
    assert missing == ({"d"} if name == "toy" else {"shape"})  # the factor with one value on the held-out side
    with pytest.raises(UserError, match="do not form a full grid"):
        view.index([[0] * len(view.names)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("holdout=elemnt", r"Write holdout=element\|range\|extrapolation, or FACTOR.*Got 'elemnt'"),
        ("holdout=q:1", "Unknown factor of toy 'q'"),
        ("holdout=a:8", r"between 0 and 7, in ascending order\. Got '8'"),
        ("holdout=a:3-2", r"in ascending order\. Got '3-2'"),
        ("holdout=a:1-", r"Got 'a:1-' instead"),
        ("holdout=a:1+a:2", "Each factor may occur at most once"),
        ("holdout=a:0-7", r"must leave examples on both sides\. 'a:0-7' holds out 960 of 960"),
        ("holdout=range&side=test", "Unknown side of the option 'holdout' 'test'"),
        ("side=training", "needs the option 'holdout'.*Got no holdout="),
        ("holdout=range&side=training&subset=5", "Got subset="),
        ("holdout=range&subset=900", r"at most 840 examples\. Got 900"),
        ("holdout=a:0+b:0+c:0+d:0&side=heldout", "At least one factor of .* must vary on both sides"),
    ],
)
def test_wrong_options(options: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(f"toy?{options}")


def test_a_split_needs_ordered_factors() -> None:
    data = ub.data.from_arrays(np.zeros((4, 3)), {"word": ["a", "b", "c", "a"]})
    with pytest.raises(UserError, match="needs an ordered factor"):
        Holdout.parse(data, "extrapolation")
    labelled = ub.data.from_arrays(np.zeros((4, 3)), {"word": ["a", "b", "c", None]}, discrete="word")
    assert Holdout.parse(labelled, "word:2").mask(labelled.factors(slice(None))).tolist() == [False, False, True, False]
