"""Draws have the documented distributions and depend only on the key, on any device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.func import vmap

import unbraid as ub
from unbraid.data import DATASETS, FactorData, load
from unbraid.data.files.catalogue import SOURCES
from unbraid.data.samplers import joint_distribution
from unbraid.data.sampling import (
    PAIRS,
    Pairs,
    factor_distances,
    laplace_transitions,
    pairs,
    pairs_sharing,
    random_walks,
    triplets,
    uniform_transitions,
)
from unbraid.errors import UserError
from unbraid.noise import Noise

MANY = 40_000
DRAWS: dict[str, Callable[[FactorData, Noise, int], Any]] = {
    **{name: draw for name, draw in PAIRS.items() if name != "sharing"},
    "one factor": partial(pairs, k=1),
    "sharing": partial(pairs_sharing, shared=["b"]),
    "walk": partial(random_walks, length=5),
    "triplets": triplets,
}


def noise(key: int = 3) -> Noise:
    return Noise(torch.tensor(key))


def indices_of(drawn: Any) -> Tensor:
    return drawn.examples if isinstance(drawn, Pairs) else drawn


def factors_of(data: FactorData, drawn: Pairs) -> tuple[Tensor, Tensor]:
    return data.factors(drawn.examples[:, 0]), data.factors(drawn.examples[:, 1])


@pytest.mark.parametrize("name", DRAWS)
def test_draws_depend_only_on_the_key(name: str, toy: FactorData) -> None:
    draw = DRAWS[name]
    keys = torch.tensor([3, 4, 99])
    alone = [indices_of(draw(toy, Noise(key), 50)) for key in keys]
    assert torch.equal(vmap(lambda key: indices_of(draw(toy, Noise(key), 50)))(keys), torch.stack(alone))
    assert torch.equal(alone[0], indices_of(draw(toy, noise(3), 50)))
    assert not torch.equal(alone[0], alone[1])


@pytest.mark.parametrize("name", DRAWS)
def test_draws_never_wait_for_the_device(name: str, toy: FactorData) -> None:
    on_meta = toy.to("meta")  # reading a value on this device raises an error
    drawn = indices_of(DRAWS[name](on_meta, Noise(torch.tensor(0, device="meta")), 6))
    assert drawn.device.type == "meta"
    assert drawn.dtype == torch.int64


@pytest.mark.parametrize("name", DRAWS)
def test_first_examples_are_uniform(name: str, toy: FactorData) -> None:
    first = toy.factors(indices_of(DRAWS[name](toy, noise(), MANY))[:, 0])
    for j, size in enumerate(toy.sizes):
        assert stats.chisquare(np.bincount(first[:, j], minlength=size)).pvalue > 1e-5


def test_the_weak_study_changes_one_or_k(toy: FactorData) -> None:
    drawn = pairs(toy, noise(), MANY)
    before, after = factors_of(toy, drawn)
    assert not ((before != after) & ~drawn.changed).any()
    # one at even odds, else uniform on 1, 2, 3
    expected = np.array([1 / 2 + 1 / 6, 1 / 6, 1 / 6]) * MANY
    assert stats.chisquare(np.bincount(drawn.changed.sum(1), minlength=4)[1:], expected).pvalue > 1e-5
    for j, size in enumerate(toy.sizes):
        moved = after[drawn.changed[:, j], j]
        assert stats.chisquare(np.bincount(moved, minlength=size)).pvalue > 1e-5  # a new value may equal the old one
        same = (before[:, j] == after[:, j])[drawn.changed[:, j]].float().mean()
        assert float(same) == pytest.approx(1 / size, abs=0.02)


def test_k_changed_factors(toy: FactorData) -> None:
    counts = pairs(toy, noise(), MANY, k=3).changed.sum(1)
    assert sorted(counts.unique().tolist()) == [1, 3]
    assert float((counts == 3).float().mean()) == pytest.approx(0.5, abs=0.02)
    for bad in (0, 5):
        with pytest.raises(ValueError, match=f"must be 1 to 4 for toy. Got {bad} instead"):
            pairs(toy, noise(), 4, k=bad)


def test_all_subsets_of_factors_are_equally_likely(toy: FactorData) -> None:
    changed = pairs(toy, noise(), MANY, k=2).changed
    two = changed[changed.sum(1) == 2]
    counts = [int((two[:, i] & two[:, j]).sum()) for i, j in itertools.combinations(range(4), 2)]
    assert stats.chisquare(counts).pvalue > 1e-5


def test_uniform_transitions_always_change_a_factor(toy: FactorData) -> None:
    drawn = uniform_transitions(toy, noise(), MANY)
    before, after = factors_of(toy, drawn)
    assert torch.equal(before != after, drawn.changed)
    assert stats.chisquare(np.bincount(drawn.changed.sum(1), minlength=4)[1:]).pvalue > 1e-5
    step = ((after - before) % torch.tensor(toy.sizes))[:, 0][drawn.changed[:, 0]]
    assert stats.chisquare(np.bincount(step, minlength=8)[1:]).pvalue > 1e-5


def exact_laplace(sizes: tuple[int, ...], start: tuple[int, ...], rate: float) -> dict[tuple[int, ...], float]:
    """Return the distribution by enumeration: independent factors, given that at least one of them changes."""
    weights = {}
    for end in itertools.product(*map(range, sizes)):
        if end != start:
            weights[end] = math.exp(
                -sum(abs(a - b) * rate / math.log(s) for a, b, s in zip(start, end, sizes, strict=True))
            )
    total = sum(weights.values())
    return {end: p / total for end, p in weights.items()}


@pytest.mark.parametrize("rate", [1.0, 4.0])
def test_laplace_transitions_have_the_enumerated_distribution(rate: float, toy: FactorData) -> None:
    """Factors c and d are fixed. The other 8 x 6 values are compared with all 47 possible ends from one start."""
    drawn = laplace_transitions(toy, noise(), 400_000, rate=rate, fixed=["c", "d"])
    before, after = factors_of(toy, drawn)
    assert torch.equal(before[:, 2:], after[:, 2:])
    assert (before != after).any(1).all()
    at_start = (before[:, 0] == 2) & (before[:, 1] == 0)
    ends = exact_laplace((8, 6), (2, 0), rate)
    counts = {end: int(((after[at_start][:, 0] == end[0]) & (after[at_start][:, 1] == end[1])).sum()) for end in ends}
    likely = [end for end in ends if ends[end] * int(at_start.sum()) > 5]
    rest = int(at_start.sum()) - sum(counts[end] for end in likely)
    observed = [*(counts[end] for end in likely), rest]
    expected = [*(ends[end] for end in likely), max(1e-12, 1 - sum(ends[end] for end in likely))]
    if rest == 0 and expected[-1] * int(at_start.sum()) < 1:
        observed, expected = observed[:-1], expected[:-1]
    assert stats.chisquare(observed, np.array(expected) / sum(expected) * sum(observed)).pvalue > 1e-5


def test_laplace_transitions_keep_categorical_factors(sprites: FactorData) -> None:
    drawn = laplace_transitions(sprites, noise(), 5000)
    before, after = factors_of(sprites, drawn)
    assert sprites.categorical == ("shape",)
    assert torch.equal(before[:, 0], after[:, 0])
    assert (before[:, 1:] != after[:, 1:]).any(0).all()
    with pytest.raises(ValueError, match="At least one factor of sprites must be free"):
        laplace_transitions(sprites, noise(), 4, fixed=sprites.names)
    with pytest.raises(ValueError, match=r"Unknown factor of sprites 'shap'\. Did you mean 'shape'\?"):
        laplace_transitions(sprites, noise(), 4, fixed=["shap"])


def test_pairs_agree_in_the_shared_factors(toy: FactorData) -> None:
    before, after = factors_of(toy, pairs_sharing(toy, noise(), MANY, shared=["a", "c"]))
    assert torch.equal(before[:, [0, 2]], after[:, [0, 2]])
    for j in (1, 3):
        cells = np.bincount(before[:, j] * toy.sizes[j] + after[:, j], minlength=toy.sizes[j] ** 2)
        assert stats.chisquare(cells).pvalue > 1e-5


def test_each_step_of_a_walk_changes_one_factor_by_one(toy: FactorData) -> None:
    steps = random_walks(toy, noise(), 2000, length=6, fixed=["d"])
    path = torch.stack([toy.factors(step) for step in steps.unbind(1)], 1)
    moves = path.diff(dim=1)
    assert torch.equal(moves.abs().sum(2), torch.ones(2000, 5, dtype=torch.int64))
    assert not moves[:, :, 3].any()
    assert stats.chisquare(moves.abs().sum((0, 1))[:3].numpy()).pvalue > 1e-5


def test_triplets_are_independent_examples_in_the_order_of_their_distances(toy: FactorData) -> None:
    """The two examples beside an anchor are uniform and independent of it, if their order is disregarded."""
    anchor, near, far = triplets(toy, noise(), MANY).unbind(1)
    assert (factor_distances(toy, anchor, near) <= factor_distances(toy, anchor, far)).all()
    others = toy.factors(torch.cat([near, far]))
    anchors = toy.factors(torch.cat([anchor, anchor]))
    for j, size in enumerate(toy.sizes):
        cells = np.bincount(anchors[:, j] * size + others[:, j], minlength=size**2)
        assert stats.chisquare(cells).pvalue > 1e-5


def test_joint_distribution_of_correlated_factors() -> None:
    table = joint_distribution((3, 5), 0.2, torch.device("cpu"))
    assert float(table.sum()) == pytest.approx(1)
    ratio = float(table[0, 0] / table[0, 4])
    assert ratio == pytest.approx(math.exp(1 / (2 * 0.2**2)))
    assert joint_distribution((3, 5), 100.0, torch.device("cpu")).numpy() == pytest.approx(
        np.full((3, 5), 1 / 15), rel=1e-4
    )


def test_correlated_data_draws_from_the_joint_distribution_and_keeps_the_grid() -> None:
    data = load("toy?correlate=a:b:0.2")
    drawn = data.factors(data.draw(noise(), MANY))
    cells = np.bincount(drawn[:, 0] * 6 + drawn[:, 1], minlength=48)
    expected = joint_distribution((8, 6), 0.2, torch.device("cpu")).flatten().numpy() * MANY
    likely = expected > 5
    observed, wanted = (
        np.append(cells[likely], cells[~likely].sum()),
        np.append(expected[likely], expected[~likely].sum()),
    )
    assert stats.chisquare(observed, wanted).pvalue > 1e-5
    assert stats.chisquare(np.bincount(drawn[:, 2], minlength=5)).pvalue > 1e-5
    assert torch.equal(data.images(slice(None)), load("toy").images(slice(None)))


def test_only_the_fixed_subset_is_drawn() -> None:
    data = load("toy?subset=50")
    seen = data.draw(noise(), MANY).unique()
    assert len(seen) == 50
    assert torch.equal(seen, load("toy?subset=50").draw(noise(8), MANY).unique())
    assert not torch.equal(seen, load("toy?subset=50&seed=1").draw(noise(), MANY).unique())
    with pytest.raises(UserError, match=r"toy\?subset=1000&seed=1, or leave out the seed"):
        load("toy?seed=1")
    assert len(data) == 960


def test_correlated_factors_within_a_subset() -> None:
    """Only the subset is drawn, in proportion to the probabilities of the two factors."""
    data, rows = (
        load("toy?correlate=a:b:0.3&subset=40&seed=2"),
        load("toy?subset=40&seed=2").draw(noise(), MANY).unique(),
    )
    drawn = torch.bincount(data.draw(noise(), MANY), minlength=960)
    assert drawn.sum() == drawn[rows].sum() == MANY
    a, b = load("toy").factors(rows)[:, :2].unbind(1)
    weights = joint_distribution((8, 6), 0.3, torch.device("cpu"))[a, b].numpy()
    assert weights.max() > 5 * weights.min()
    assert stats.chisquare(drawn[rows].numpy(), weights / weights.sum() * MANY).pvalue > 1e-5
    with pytest.raises(UserError, match=r"Got 1 examples of toy, none of which is possible. Use a larger subset"):
        load("toy?correlate=a:b:0.001&subset=1&seed=3")


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "consecutive"])
def test_pairs_never_leave_a_subset(name: str) -> None:
    """The second example of a pair need not be in the subset, so a subset is rejected."""
    options = {"shared": ["a"]} if name == "sharing" else {}
    for options_of_data in ("subset=50", "correlate=a:b:0.3&subset=50"):
        with pytest.raises(UserError, match=r"Got toy\?.*subset=50 instead, .* Remove the options subset"):
            PAIRS[name](load(f"toy?{options_of_data}"), noise(), 8, **options)
    PAIRS[name](load("toy?correlate=a:b:0.3"), noise(), 8, **options)


@pytest.mark.parametrize("method", ["ada_gvae", "slow_vae", "pmp"])
def test_methods_for_pairs_reject_a_subset(method: str) -> None:
    with pytest.raises(UserError, match="Remove the options subset"):
        ub.train(method, "toy?subset=50", steps=1, batch=8, quiet=True)


def test_random_colours_depend_only_on_the_run() -> None:
    """The colours come from the noise of the run: it trains to the same weights alone and beside another run."""
    data = load("color_dsprites")
    kind, settings = ub.methods.VAE(), {"data": data, "steps": 2, "batch": 4, "latents": 3, "net": "mlp", "quiet": True}
    alone = ub.train(kind, seeds=[1], **settings)[0]
    beside = ub.train(kind, seeds=[0, 1], **settings)[1]
    other = ub.train(kind, seeds=[2], **settings)[0]
    for name, value in alone.net.state_dict().items():
        assert torch.allclose(beside.net.state_dict()[name], value, atol=1e-6), name
    assert alone.log[-1]["rec"] != other.log[-1]["rec"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("toy?corelate=a:b:1", "Unknown option of toy 'corelate'. Did you mean 'correlate'?"),
        ("toy?correlate=a:z:1", "Unknown factor of toy 'z'"),
        ("toy?correlate=a:a:1", "two different factors"),
        ("toy?correlate=a:b", "correlate=FACTOR:FACTOR:SPREAD"),
        ("toy?correlate=a:b:0", "must be finite and > 0"),
        ("toy?subset=0", "must be between 1 and 960"),
        ("toy?subset=many", "must be a whole number"),
        ("tooy?subset=4", "Unknown dataset 'tooy'. Did you mean 'toy'?"),
    ],
)
def test_invalid_options_are_rejected(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        load(name)


def test_catalogue_covers_the_registry() -> None:
    assert set(SOURCES) == set(DATASETS)
