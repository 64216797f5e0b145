"""The relation network: it equals its loops, runs do not affect each other, and it learns from factors only."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from oracles.reasoning import relation_scores
from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.reasoning.learning import ReasoningSettings, learning_curves, training_puzzles
from unbraid.reasoning.panels import Panels
from unbraid.reasoning.relation_network import RelationNetwork

SMALL = ReasoningSettings(steps=250, batch=32, edge=(48,), graph=(32,), points=2, test=500, learning_rate=5e-3)
CHANCE_ERROR = (5 / 36 / SMALL.test) ** 0.5


def panels(*sizes: int) -> Panels:
    return Panels(sizes, torch.arange(torch.tensor(sizes).prod().item()))


def test_network_equals_its_loops() -> None:
    torch.manual_seed(0)
    network = RelationNetwork(2, 3, (7, 5), (4, 6), Noise.from_seed(torch.tensor(0), torch.tensor(0)))
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape)
    context, answers = torch.randn(2, 4, 8, 3), torch.randn(2, 4, 6, 3)
    found = network(context, answers)
    for run in range(2):
        for puzzle in range(4):
            wanted = relation_scores(network, run, context[run, puzzle], answers[run, puzzle])
            assert found[run, puzzle].tolist() == pytest.approx(wanted, abs=1e-4)


def test_true_factors_are_learned_and_noise_is_not() -> None:
    """Noise has a random code for each of 64,000 panels, too many to remember in 250 steps."""
    easy = panels(4, 4, 4, 4)
    factors = learning_curves(easy.combinations()[None].float(), easy, SMALL)[0]
    assert factors[-1] > 1 / 6 + 8 * CHANCE_ERROR
    many = panels(10, 10, 10, 4, 4, 4)
    noise = learning_curves(torch.randn(1, 64_000, 6, generator=torch.Generator().manual_seed(0)), many, SMALL)[0]
    assert abs(noise[-1] - 1 / 6) < 4 * CHANCE_ERROR


def test_a_run_learns_alone_as_in_a_stack() -> None:
    settings, space = dataclasses.replace(SMALL, steps=20, dropout=0.5), panels(4, 4, 4)
    codes = torch.randn(3, 64, 5, generator=torch.Generator().manual_seed(1))
    together = learning_curves(codes, space, settings)
    for run in range(3):
        alone = learning_curves(codes[run : run + 1], space, settings)[0]
        assert torch.allclose(together[run], alone, atol=3 / settings.test)  # rounding may change a few answers
    assert len({tuple(row.tolist()) for row in together}) == 3


@pytest.mark.gpu
def test_a_gpu_learns_the_same_curves() -> None:
    settings, space = dataclasses.replace(SMALL, steps=20, dropout=0.5), panels(4, 4, 4)
    codes = torch.randn(3, 64, 5, generator=torch.Generator().manual_seed(1))
    wanted, found = (learning_curves(codes.to(device), space, settings) for device in ("cpu", "cuda"))
    assert torch.allclose(found, wanted, atol=10 / settings.test)


def test_codes_that_are_not_finite_give_no_accuracy_and_spoil_no_other_run() -> None:
    settings, space = dataclasses.replace(SMALL, steps=4), panels(4, 4, 4)
    codes = torch.stack([space.combinations().float()] * 2)
    alone = learning_curves(codes[:1], space, settings)
    codes[1, 0, 0] = torch.inf
    found = learning_curves(codes, space, settings)
    assert found[1].isnan().all()
    assert torch.allclose(found[:1], alone, atol=3 / settings.test)


def test_accuracy_is_measured_at_equal_distances() -> None:
    assert ReasoningSettings(steps=10, points=4).measured_steps() == [2, 5, 7, 10]
    assert ReasoningSettings(steps=3, points=20).measured_steps() == [1, 2, 3]


def test_training_puzzles_differ_between_steps() -> None:
    settings = dataclasses.replace(SMALL, steps=202, batch=4)
    steps = list(training_puzzles(panels(4, 4, 4), settings))
    assert len(steps) == 202
    assert {len(step.position) for step in steps} == {4}
    assert len({str(step.context.tolist()) for step in steps}) == 202


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"alternatives": "medium"}, "medium"), ({"steps": 0}, "`steps` must be at least 1"),
        ({"relations": ()}, "`relations` must have"), ({"edge": (0,)}, "`edge` must have"),
        ({"dropout": 1.0}, "`dropout` must be in"), ({"learning_rate": 0.0}, "`learning_rate` above 0"),
    ],
)  # fmt: skip
def test_settings_are_checked(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ReasoningSettings(**changed)  # type: ignore[arg-type]
