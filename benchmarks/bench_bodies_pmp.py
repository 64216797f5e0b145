"""Measure how well PMP separates subject and pose of body meshes, and how close swapped meshes are to the true ones.

Every mesh (subject, pose) is combined with every donor, a mesh of another subject in another pose. If the pose subspace
is taken from the donor, the result should be the mesh (subject, pose of the donor), which the grid contains. The
baseline is one autoencoder, the same network without the terms of PMP. Its coordinates with the largest share of
variance that is due to the pose are swapped. Their number is that of the pose subspace, for each run of PMP.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

import unbraid as ub
from machine import describe
from unbraid.data.rendered.bodies import Bodies, bodies
from unbraid.methods import PMP
from unbraid.pictures.subspaces import swap_subspaces
from unbraid.runs.run import Run

HERE = Path(__file__).parent
RESULT, PICTURE = HERE / "results" / "bench_bodies_pmp.json", HERE.parent / "docs" / "pictures" / "bodies_swapping.png"
VERTICES, BATCH, LATENTS, RATE = 1229, 32, 10, 3e-3
WEIGHTS = {"distance": 0.6, "consistency": 3.0}
NO_TERMS = {"distance": 0.0, "sparsity": 0.0, "consistency": 0.0, "regularisation": 0.0}
MILLIMETRES = 1000


@dataclass(frozen=True)
class Grid:
    """The meshes of subjects in poses, and all swaps: indices of examples, donors and the true results."""

    meshes: Float[Tensor, "n v 3"]
    subject: Tensor
    pose: Tensor
    example: Tensor
    donor: Tensor
    truth: Tensor

    @classmethod
    def from_data(cls, data: Bodies) -> Grid:
        subject, pose = data.factors(slice(None)).T
        different = (subject[:, None] != subject) & (pose[:, None] != pose)
        example, donor = different.nonzero().T
        truth = data.index(torch.stack([subject[example], pose[donor]], 1))
        return cls(data.table.unflatten(1, (-1, 3)), subject, pose, example, donor, truth)

    def error(self, found: Float[Tensor, "n v 3"], truth: Tensor) -> float:
        """Return the mean distance of vertices from those of the meshes at `truth`, in millimetres."""
        return MILLIMETRES * float((found - self.meshes[truth]).norm(dim=2).mean())

    def swap_error(self, run: Run, parts: Float[Tensor, "n k d"], from_donor: Bool[Tensor, " k"]) -> float:
        """Return the error of examples decoded with some parts from donors."""
        z = torch.where(from_donor[:, None], parts[self.donor], parts[self.example]).sum(1)
        return self.error(run.decode(z).unflatten(1, (-1, 3)), self.truth)

    def nearest_neighbour_accuracy(self, code: Float[Tensor, "n d"]) -> dict[str, float]:
        """Return how often the nearest code of another pose has the same subject, and vice versa."""
        distances = torch.cdist(code, code)
        pairs = {"subject": (self.subject, self.pose), "pose": (self.pose, self.subject)}
        found = {}
        for name, (label, other) in pairs.items():
            nearest = distances.masked_fill(other[:, None] == other, torch.inf).argmin(1)
            found[name] = float((label[nearest] == label).float().mean())
        return found

    def baselines(self) -> dict[str, float]:
        """Return errors without any code: of the unchanged example, the unchanged donor, and the mean mesh."""
        index = torch.arange(len(self.meshes))
        mean = self.meshes.mean(0, keepdim=True).expand_as(self.meshes)
        return {
            "example_kept": self.error(self.meshes[self.example], self.truth),
            "donor_taken": self.error(self.meshes[self.donor], self.truth),
            "mean_mesh": self.error(mean, index),
        }

    def reconstruction_error(self, run: Run, code: Float[Tensor, "n d"]) -> float:
        """Return the error of all meshes decoded from their own codes."""
        return self.error(run.decode(code).unflatten(1, (-1, 3)), torch.arange(len(self.meshes)))


def measure(run: Run, grid: Grid, data: Bodies) -> dict[str, Any]:
    """Return the results of a run of PMP. The subspace that predicts the pose most accurately is the pose subspace."""
    method = run.spec.method
    assert isinstance(method, PMP)
    parts = method.subspace_codes(run.net, run.posterior(data.table))
    accuracies = [grid.nearest_neighbour_accuracy(part) for part in parts.unbind(1)]
    chosen = max(range(len(accuracies)), key=lambda i: accuracies[i]["pose"])
    from_donor = torch.arange(len(accuracies)) == chosen
    deviations = parts.std(0)
    return {
        "seed": run.spec.seed,
        "reconstruction_mm": grid.reconstruction_error(run, parts.sum(1)),
        "told_by_subspace": accuracies,
        "pose_subspace": chosen,
        "pose_coordinates": int((deviations.argmax(0) == chosen).sum()),
        "swapped_mm": grid.swap_error(run, parts, from_donor),
    }


def measure_autoencoder(run: Run, grid: Grid, data: Bodies, count: int) -> dict[str, Any]:
    """Return the results of an autoencoder in which `count` coordinates are swapped.

    These are the coordinates with the largest share of variance that is due to the pose.
    """
    code = run.encode(data.table)
    cells = code.unflatten(0, data.sizes)
    share = cells.mean(0).var(0) / (cells.mean(1).var(0) + cells.mean(0).var(0))
    from_donor = torch.zeros(code.shape[1], dtype=torch.bool)
    from_donor[share.argsort(descending=True)[:count]] = True
    return {
        "seed": run.spec.seed,
        "reconstruction_mm": grid.reconstruction_error(run, code),
        "told": grid.nearest_neighbour_accuracy(code),
        "coordinates_taken": count,
        "swapped_mm": grid.swap_error(run, torch.diag_embed(code), from_donor),
    }


def train_runs(weights: dict[str, Any], data: Bodies, seeds: range, steps: int) -> list[Run]:
    """Train PMP with two subspaces on pairs that share the subject or the pose."""
    method = PMP(pairs="sharing", subspaces=2, horizon=float(steps), **weights)
    return ub.train(
        method, data=data, seeds=seeds, steps=steps, batch=BATCH, learning_rate=RATE, latents=LATENTS,
        net="unbraid.nets.pointnet:pointnet", likelihood="gaussian",
    )  # fmt: skip


def draw(run: Run, data: Bodies) -> None:
    """Draw one body with subspaces of bodies of other subjects in other poses."""
    donors = data.index([[6, 2], [8, 5], [2, 6], [4, 3], [3, 8], [5, 4], [9, 7]]).tolist()
    example = int(data.index([[0, 1]])[0])
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(swap_subspaces(run, data, example=example, donors=donors, out=folder), PICTURE)


def main() -> None:
    """Train, measure, print, and write the result and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    data, seeds = bodies(vertices=VERTICES), range(options.seeds)
    grid, started = Grid.from_data(data), time.perf_counter()
    runs = train_runs(WEIGHTS, data, seeds, options.steps)
    seconds = time.perf_counter() - started
    results = [measure(run, grid, data) for run in runs]
    (autoencoder,) = train_runs(NO_TERMS, data, seeds[:1], options.steps)
    plain = [measure_autoencoder(autoencoder, grid, data, one["pose_coordinates"]) for one in results]
    settings = {"batch": BATCH, "latents": LATENTS, "learning_rate": RATE, "steps": options.steps, **WEIGHTS}
    figures = {"settings": settings, "seconds": seconds, "baselines_mm": grid.baselines()}
    RESULT.write_text(json.dumps({**describe(), **figures, "pmp": results, "autoencoder": plain}, indent=2) + "\n")
    best = min(range(len(runs)), key=lambda i: float(results[i]["swapped_mm"]))
    draw(runs[best], data)
    print_results(results, plain, grid.baselines(), seconds)


def print_results(
    results: list[dict[str, Any]], plain: list[dict[str, Any]], baselines: dict[str, float], seconds: float
) -> None:
    """Print the errors and accuracies of all runs."""
    print(f"{len(results)} runs of PMP in {seconds:.0f} s; errors in mm")
    print("without a code: " + ", ".join(f"{name} {value:.0f}" for name, value in baselines.items()))
    for name, rows in (("pmp", results), ("autoencoder", plain)):
        for row in rows:
            accuracies = row.get("told_by_subspace") or [row["told"]]
            text = "; ".join(f"subject {one['subject']:.2f} pose {one['pose']:.2f}" for one in accuracies)
            part = row.get("pose_coordinates") or row["coordinates_taken"]
            print(
                f"{name} seed {row['seed']}: error {row['reconstruction_mm']:.0f}, swapped {row['swapped_mm']:.0f} "
                f"with {part} coordinates; "
                f"accuracy of the nearest neighbour: {text}"
            )


if __name__ == "__main__":
    main()
