"""Tests of manipulations: the networks, the adversarial training, and the measured gap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from support.manipulations import SMALL, discs, short_training
from unbraid.data import FactorData, from_arrays, load
from unbraid.data.manipulated import apply_manipulation, reflect
from unbraid.data.manipulation_files import describe_data, read_manipulation, write_manipulation
from unbraid.distributions import LIKELIHOODS
from unbraid.errors import UserError
from unbraid.manipulation import measure_gap, modify
from unbraid.manipulation.adversarial_training import N_PATTERNS, AdversarialTraining, initial_axis
from unbraid.manipulation.networks import FixedEncoderPair, Manipulation, PairFamilies, rotated_copy, rotation_matrix
from unbraid.manipulation.recipes import RECIPES, fill_recipe
from unbraid.manipulation.settings import FactorStandardiser, choose_planes, factor_strengths, fill_settings
from unbraid.runtime import progress


def test_pattern_table_matches_the_network() -> None:
    """The pattern of each example in the table equals the output of the network up to rounding."""
    training = short_training(discs())
    patterns, pattern_index = training.pattern_table()
    w = training.standardise(training.data.factors(slice(None)))
    with torch.no_grad():
        exact, scalar = training.manipulation(w), training.manipulation.scalar(w)[:, 0]
    assert len(patterns) == N_PATTERNS
    assert (int(pattern_index.min()), int(pattern_index.max())) == (0, N_PATTERNS - 1)
    assert bool((pattern_index[scalar.argsort()].diff() >= 0).all())
    assert float((patterns[pattern_index.long()] / 127 - exact).abs().max()) < 0.5 / 127 + 1e-3


def test_entangling_pairs_start_as_the_same_function_as_disentangling_pairs() -> None:
    """This no longer holds if the capacity is distributed unequally over the latents."""
    rotation = rotation_matrix(3, [(0, 2)])
    assert torch.allclose(rotation @ rotation.T, torch.eye(3), atol=1e-6)
    assert rotation[:, 1].tolist() == [0, 1, 0]
    pair = FixedEncoderPair((1, 16, 16), rotation_matrix(3, []), 4.5)
    w, epsilon = torch.randn(5, 3), torch.randn(5, 3)
    assert torch.allclose(pair(w, epsilon), rotated_copy(pair, rotation)(w, epsilon), atol=1e-5)
    with torch.no_grad():
        pair.shares.copy_(torch.tensor([1.0, -2.0, 0.3]))
    sigma = pair.sigma().detach()
    assert float(-sigma.log().sum()) == pytest.approx(4.5, rel=1e-5)
    assert float(sigma.max()) <= 1
    assert not torch.allclose(pair(w, epsilon), rotated_copy(pair, rotation)(w, epsilon), atol=1e-3)


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_a_perfect_decoder_has_zero_error(likelihood: str) -> None:
    pairs = PairFamilies((1, 16, 16), 2, [[(0, 1)]], 2.0, likelihood, 2)
    x = torch.rand(3, 1, 16, 16)
    x[0] = x[0].round()  # the entropy of a black and white image is zero
    perfect = LIKELIHOODS[likelihood].output(x).repeat(2, 1, 1, 1)
    blurred = LIKELIHOODS[likelihood].output(0.8 * x + 0.1).repeat(2, 1, 1, 1)
    perfect_error, blurred_error = pairs.errors(x, [perfect, blurred]).tolist()
    assert perfect_error == pytest.approx(0, abs=0.02)
    # The sum of (0.2 x - 0.1)^2 / 2 over 256 pixels is 0.43 for grey images and 1.28 for black and white images.
    assert blurred_error > 0.5


def test_factors_are_standardised_and_planes_chosen_by_strength() -> None:
    data = load("sprites")
    w = FactorStandardiser(data)(data.factors(slice(None)))
    assert torch.allclose(w.mean(0), torch.zeros(5), atol=1e-5)
    assert torch.allclose(w.var(0, correction=0), torch.ones(5), atol=1e-4)
    strength = factor_strengths(data)
    assert strength["x"] > strength["y"] > strength["orientation"] > strength["scale"]
    assert choose_planes(data, "closest", 2, 0) == ((("orientation", "y"),),) * 2
    random_planes = choose_planes(data, "random", 3, 0)
    assert random_planes == choose_planes(data, "random", 3, 0) != choose_planes(data, "random", 3, 1)
    assert all(len({name for plane in planes for name in plane} - {"shape"}) == 4 for planes in random_planes)
    assert choose_planes(data, "x:orientation", 1, 0) == ((("x", "orientation"),),)
    labelled = from_arrays(np.zeros((5, 16, 16)), np.array([[0, 0], [1, 2], [3, 1], [1, 0], [0, 1]]))
    assert not labelled.gridded
    assert torch.allclose(
        FactorStandardiser(labelled)(labelled.factors(slice(None))).mean(0), torch.zeros(2), atol=1e-6
    )


def test_the_scalar_starts_along_the_diagonal_and_has_a_lower_learning_rate() -> None:
    data = load("sprites")
    training = AdversarialTraining(data, fill_settings(data, 0.1, 4, 8, 2, 1, "x:y", None, "bernoulli", 1e-3, 0))
    w = training.standardise(data.factors(slice(None)))
    scalar = training.manipulation.squeeze(w)[:, 0].detach()
    x, y = (w[:, training.standardise.names.index(name)] for name in ("x", "y"))
    assert float(torch.corrcoef(torch.stack([scalar, x + y]))[0, 1]) > 0.9
    rates = {name: optimiser.param_groups[0]["lr"] for name, optimiser in training.optimisers.items()}
    assert rates == pytest.approx({"pairs": 1e-3, "m": 1e-4})


def test_the_file_depends_only_on_the_seed(tmp_path: Path) -> None:
    files = [modify(discs(), out=tmp_path / f"{i}.safetensors", **SMALL, seed=i // 2) for i in range(4)]
    first, again, other, _ = (path.read_bytes() for path in files)
    assert first == again != other
    written = files[0].stat().st_mtime_ns
    assert modify(discs(), out=files[0], **SMALL).stat().st_mtime_ns == written  # the existing file is left unchanged
    fingerprints = [apply_manipulation(discs(), path).fingerprint for path in files]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


class Interrupted(Exception):
    """Raised in the tests instead of a signal that ends the process."""


def test_interrupted_training_resumes_to_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training resumes at the last checkpoint, only with the same settings, and writes the same bytes."""
    from unbraid.manipulation import modification

    monkeypatch.setattr(modification, "LOG_EVERY", 2)
    settings = {**SMALL, "steps": 7, "checkpoint_every": 2}
    uninterrupted = modify(discs(), out=tmp_path / "uninterrupted.safetensors", **settings)

    def raise_after_five_steps(done: float, note: str = "") -> None:
        if done == 5:
            raise Interrupted

    out = tmp_path / "interrupted.safetensors"
    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(progress, "ignore_progress", raise_after_five_steps)
        modify(discs(), out=out, **settings)
    assert not out.exists()
    checkpoint = out.with_suffix(".checkpoint")
    assert json.loads(safetensors.safe_open(checkpoint, "pt").metadata()["unbraid"])["step"] == 4
    with pytest.raises(UserError, match="made with seed = 0"):
        modify(discs(), out=out, **settings, seed=1)
    steps: list[int] = []
    run_step = AdversarialTraining.step
    monkeypatch.setattr(AdversarialTraining, "step", lambda self, step: (steps.append(step), run_step(self, step))[1])
    modify(discs(), out=out, **settings)
    assert steps == [4, 5, 6]
    assert out.read_bytes() == uninterrupted.read_bytes()
    assert not checkpoint.exists()


def test_restored_training_shares_no_state_with_the_original() -> None:
    """Both reach the same errors although one runs after the other, because they do not share the moments of Adam."""
    first = short_training(discs())
    second = AdversarialTraining(first.data, first.settings)
    second.restore(first.state())
    final_terms = []
    for training in (first, second):
        for step in range(4, 7):
            training.step(step)
        final_terms.append(training.terms.clone())
    torch.testing.assert_close(final_terms[1], final_terms[0], rtol=1e-5, atol=1e-6)


def test_divergence_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="diverged before step"):
        modify(discs(), out=tmp_path / "m.safetensors", **{**SMALL, "steps": 30, "learning_rate": 1e18})
    assert not (tmp_path / "m.safetensors").exists()


def discs_with_diagonal_brightness(strength: float) -> FactorData:
    """Return discs whose background brightness grows along a diagonal of the factors, as an ideal manipulation."""
    plain = discs()
    w = FactorStandardiser(plain)(plain.factors(slice(None)))
    images = plain.batch(torch.arange(len(plain)))
    brightness = strength * (w.sum(1) / w.sum(1).abs().max()).view(-1, 1, 1, 1)
    return from_arrays(reflect(images + brightness).numpy(), plain.factors(slice(None)).numpy(), names=plain.names)


def test_gap_is_smaller_if_images_change_along_a_diagonal_of_the_factors() -> None:
    """The gap is then negative. Repeated measurements are equal."""
    settings: dict[str, Any] = {"steps": 300, "batch": 32, "samples": 2, "rotations": "right:down"}
    original, manipulated = (
        measure_gap(discs_with_diagonal_brightness(strength), **settings) for strength in (0.0, 0.4)
    )
    assert manipulated["gap"] + 3 * manipulated["error"] < original["gap"] - 3 * original["error"]
    assert manipulated["gap"] < 0
    short = {**settings, "steps": 3}
    first, second = (measure_gap(discs_with_diagonal_brightness(0.4), **short) for _ in range(2))
    assert first == second


def reorder_patterns_along_factor(name: str, file: Path) -> Path:
    """Write a control manipulation that has the same patterns equally often, but ordered along one factor."""
    data = load("sprites")
    tensors, metadata = read_manipulation(file)
    order = data.factors(slice(None))[:, data.names.index(name)].argsort(stable=True)
    which = torch.empty_like(tensors["which"])
    which[order] = tensors["which"].sort().values
    out = file.with_name(f"{name}.safetensors")
    write_manipulation(out, tensors["patterns"], which, {**describe_data(data), "eps": metadata["eps"]})
    return out


@pytest.mark.slow
def test_learned_patterns_reduce_the_gap_more_than_noise_does(tmp_path: Path) -> None:
    """New decoders have a smaller gap than on the original data, with noise, and with patterns ordered along x."""
    out = tmp_path / "m.safetensors"
    file = modify("sprites", out=out, steps=800, batch=16, samples=2, quiet=True)
    names = (
        "sprites",
        "sprites?noise=0.1",
        f"sprites?modified={file}",
        f"sprites?modified={reorder_patterns_along_factor('x', file)}",
    )
    original, noise, manipulated, along_x = (measure_gap(name, steps=400, batch=16, samples=2) for name in names)
    assert original["gap"] > 5 * original["error"]
    assert manipulated["gap"] + 3 * manipulated["error"] < noise["gap"] - 3 * noise["error"]
    assert manipulated["gap"] < 0.6 * original["gap"]
    assert manipulated["log_ratio"] < 0.75 * noise["log_ratio"]
    assert manipulated["gap"] + 2 * manipulated["error"] < along_x["gap"] - 2 * along_x["error"]


def test_the_recipe_of_the_paper() -> None:
    """Both learning rates are 1e-4, and what the paper does not state is left out. Given values have priority."""
    data = discs()
    settings = fill_settings(data, 0.1, 4, 8, 2, 1, "right:down", None, "bernoulli", seed=0, **RECIPES["paper"])
    training = AdversarialTraining(data, settings)
    rates = [optimiser.param_groups[0]["lr"] for optimiser in training.optimisers.values()]
    assert rates == [1e-4, 1e-4]
    assert not [m for m in training.manipulation.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    assert settings.warm == 0
    assert fill_recipe("paper", {"rounds": 7, "warm": None})["rounds"] == 7
    with pytest.raises(UserError, match="Did you mean 'paper'"):
        fill_recipe("papr", {})


def gradient_of_manipulation(**changed: Any) -> torch.Tensor:
    """Return the gradient of a layer of the manipulation on one batch, and the errors that determine it."""
    data = discs()
    settings = fill_settings(data, 0.1, 4, 8, 2, 1, "right:down", None, "bernoulli", seed=0, **choices(**changed))
    training = AdversarialTraining(data, settings)
    for batch in range(6):  # so that the two families differ
        training.train_pairs(torch.tensor(batch))
    disentangling, entangling, *_ = training.train_manipulation(torch.tensor(9), update=False)
    weights = next(training.manipulation.decoder.parameters())
    assert weights.grad is not None
    return torch.cat([weights.grad.flatten(), disentangling[None], entangling[None]])


def choices(**changed: Any) -> dict[str, Any]:
    """Return the settings of the default recipe with some of them changed."""
    return {**RECIPES["default"], **changed}


def test_the_plain_difference_is_another_objective() -> None:
    """On one batch, both objectives see the same errors but have different gradients."""
    log_ratio, difference = (gradient_of_manipulation(objective=name) for name in ("log_ratio", "difference"))
    torch.testing.assert_close(log_ratio[-2:], difference[-2:])
    mean_error = float(log_ratio[-2:].mean())  # the derivative of the logarithm is about its inverse
    assert float(difference[:-2].norm()) == pytest.approx(mean_error * float(log_ratio[:-2].norm()), rel=0.1)


def test_without_normalisation_patterns_may_fade() -> None:
    """A faint pattern stays faint. With normalisation, its strength is restored."""
    for normalise in (True, False):
        manipulation = Manipulation(torch.ones(2), (1, 16, 16), normalise)
        last = [m for m in manipulation.decoder.modules() if isinstance(m, torch.nn.ConvTranspose2d)][-1]
        with torch.no_grad():
            last.weight.mul_(0.1)
            strength = float(manipulation(torch.randn(64, 2)).abs().mean())
        assert strength > 0.3 if normalise else strength < 0.1


def test_a_random_scalar_has_no_direction() -> None:
    """Over several seeds, it is sometimes almost uncorrelated with the diagonal of x and y."""
    data, smallest = load("sprites"), {}
    standardise = FactorStandardiser(data)
    w = standardise(data.factors(slice(None)))
    diagonal = sum(w[:, standardise.names.index(name)] for name in ("x", "y"))
    for scalar in ("diagonal", "random"):
        settings = fill_settings(data, 0.1, 4, 8, 2, 1, "x:y", None, "bernoulli", seed=0, **choices(scalar=scalar))
        correlations = []
        for seed in range(8):
            torch.manual_seed(seed)
            value = Manipulation(initial_axis(standardise, settings), data.shape).squeeze(w)[:, 0].detach()
            correlations.append(float(torch.corrcoef(torch.stack([value, diagonal]))[0, 1].abs()))
        smallest[scalar] = min(correlations)
    assert smallest["diagonal"] > 0.85
    assert smallest["random"] < 0.4


def test_recipes_are_recorded_and_compared(tmp_path: Path) -> None:
    """Files of the default recipe record what they did before. A file of another recipe is not taken for it."""
    small = {key: value for key, value in SMALL.items() if key != "learning_rate"}
    default, paper = tmp_path / "default.safetensors", tmp_path / "paper.safetensors"
    modify(discs(), out=default, **small)
    modify(discs(), out=paper, **small, recipe="paper")
    recorded = [read_manipulation(path, tensors=False)[1]["recipe"] for path in (default, paper)]
    assert not {"objective", "normalise", "scalar"} & set(recorded[0])
    assert (recorded[0]["learning_rate"], recorded[0]["pace"]) == (1e-3, 0.1)
    assert recorded[1]["objective"] == "difference"
    assert recorded[1]["normalise"] is False
    assert (recorded[1]["learning_rate"], recorded[1]["pace"], recorded[1]["warm"]) == (1e-4, 1.0, 0.0)
    for path, recipe in ((default, "paper"), (paper, "default")):
        with pytest.raises(UserError, match="already exists and was made with"):
            modify(discs(), out=path, **small, recipe=recipe)
    written = paper.stat().st_mtime_ns
    assert modify(discs(), out=paper, **small, recipe="paper").stat().st_mtime_ns == written
    with pytest.raises(UserError, match="made with objective = difference"):
        modify(discs(), out=paper, **small, recipe="paper", objective="log_ratio")


def test_an_interrupted_training_of_the_paper_resumes(tmp_path: Path) -> None:
    """Networks without normalisation have checkpoints, too."""
    data = discs()
    settings = fill_settings(data, 0.1, 4, 8, 2, 1, "right:down", None, "bernoulli", seed=0, **RECIPES["paper"])
    first, second = AdversarialTraining(data, settings), AdversarialTraining(data, settings)
    first.step(0)
    second.restore(first.state())
    torch.testing.assert_close(first.step(1).clone(), second.step(1))


def test_a_file_is_not_reused_for_other_images(tmp_path: Path) -> None:
    data, path = discs(), tmp_path / "discs.safetensors"
    inverted = from_arrays(255 - data.images(slice(None)), data.factors(slice(None)), names=data.names)
    modify(data, out=path, **SMALL)
    assert modify(discs(), out=path, **SMALL) == path
    with pytest.raises(UserError, match="was made from other images"):
        modify(inverted, out=path, **SMALL)
    few = tmp_path / "few.safetensors"
    modify("sprites?subset=50", out=few, **SMALL)
    with pytest.raises(UserError, match=r"from other images, sprites\?subset=50\. Got sprites instead"):
        modify("sprites", out=few, **SMALL)
