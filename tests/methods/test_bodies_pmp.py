"""PMP on body meshes: a subspace taken from another body moves a body towards the one it should become."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import unbraid as ub
from unbraid.data.rendered.bodies import Bodies, bodies
from unbraid.data.rendered.body_model import TOPOLOGIES
from unbraid.errors import UserError
from unbraid.methods.pmp import PMP
from unbraid.runs.run import Run

STEPS = 600


@pytest.fixture(scope="module")
def data() -> Bodies:
    try:
        return bodies(vertices=min(TOPOLOGIES))
    except UserError as reason:
        pytest.skip(f"bodies are neither kept nor can they be made: {reason}")


def error(found: Tensor, truth: Tensor) -> float:
    """The mean distance of vertices, in millimetres."""
    return 1000 * float((found - truth).unflatten(1, (-1, 3)).norm(dim=2).mean())


def swaps(data: Bodies) -> tuple[Tensor, Tensor, Tensor]:
    """All examples with all donors of another subject and pose, and the example's subject in the donor's pose."""
    subject, pose = data.factors(slice(None)).T
    example, donor = ((subject[:, None] != subject) & (pose[:, None] != pose)).nonzero().T
    return example, donor, data.index(torch.stack([subject[example], pose[donor]], 1))


def swap_errors(run: Run, data: Bodies) -> list[float]:
    """The error for each subspace that is taken from the donor."""
    method = run.spec.method
    assert isinstance(method, PMP)
    parts = method.project(run.net, run.posterior(data.table))
    example, donor, truth = swaps(data)
    found = []
    for i in range(method.subspaces):
        taken = torch.arange(method.subspaces)[:, None] == i
        z = torch.where(taken, parts[donor], parts[example]).sum(1)
        found.append(error(run.decode(z), data.table[truth]))
    return found


@pytest.mark.slow
def test_taking_a_subspace_moves_bodies_towards_the_truth(data: Bodies) -> None:
    method = PMP(pairs="sharing", subspaces=2, horizon=float(STEPS), distance=0.6, consistency=3.0)
    (run,) = ub.train(
        method, data=data, seeds=[1], steps=STEPS, batch=32, learning_rate=3e-3, net="unbraid.nets.pointnet:pointnet",
        likelihood="gaussian", quiet=True,
    )  # fmt: skip
    example, _, truth = swaps(data)
    kept = error(data.table[example], data.table[truth])
    mean = error(data.table.mean(0).expand_as(data.table), data.table)
    better, worse = sorted(swap_errors(run, data))
    assert better < min(kept, mean) < worse
    assert error(run.decode(run.encode(data.table)), data.table) < mean / 2
