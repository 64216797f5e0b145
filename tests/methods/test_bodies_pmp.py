"""PMP on body meshes learns a subspace for the pose, which can be swapped between bodies."""

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
        pytest.skip(f"bodies are not cached and cannot be generated: {reason}")


def mean_vertex_distance(actual: Tensor, truth: Tensor) -> float:
    """Return the mean distance between corresponding vertices, in millimetres."""
    return 1000 * float((actual - truth).unflatten(1, (-1, 3)).norm(dim=2).mean())


def swap_indices(data: Bodies) -> tuple[Tensor, Tensor, Tensor]:
    """Return three tensors of indices: examples, donors, and the correct results of swapping the pose.

    Each donor differs from its example in subject and pose. The correct result has the subject of the example and the
    pose of the donor.
    """
    subject, pose = data.factors(slice(None)).T
    example, donor = ((subject[:, None] != subject) & (pose[:, None] != pose)).nonzero().T
    return example, donor, data.index(torch.stack([subject[example], pose[donor]], 1))


def swap_errors(run: Run, data: Bodies) -> list[float]:
    """Return, for each subspace, the error in millimetres if this subspace is taken from the donor."""
    method = run.spec.method
    assert isinstance(method, PMP)
    parts = method.subspace_codes(run.net, run.posterior(data.table))
    example, donor, truth = swap_indices(data)
    errors = []
    for i in range(method.subspaces):
        from_donor = torch.arange(method.subspaces)[:, None] == i
        z = torch.where(from_donor, parts[donor], parts[example]).sum(1)
        errors.append(mean_vertex_distance(run.decode(z), data.table[truth]))
    return errors


@pytest.mark.slow
def test_one_subspace_encodes_the_pose(data: Bodies) -> None:
    method = PMP(pairs="sharing", subspaces=2, horizon=float(STEPS), distance=0.6, consistency=3.0)
    (run,) = ub.train(
        method, data=data, seeds=[1], steps=STEPS, batch=32, learning_rate=3e-3, net="unbraid.nets.pointnet:pointnet",
        likelihood="gaussian", quiet=True,
    )  # fmt: skip
    example, _, truth = swap_indices(data)
    unchanged = mean_vertex_distance(data.table[example], data.table[truth])
    mean = mean_vertex_distance(data.table.mean(0).expand_as(data.table), data.table)
    better, worse = sorted(swap_errors(run, data))
    assert better < min(unchanged, mean) < worse
    assert mean_vertex_distance(run.decode(run.encode(data.table)), data.table) < mean / 2
