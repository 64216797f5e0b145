"""PMP on body meshes: how far subject and pose come apart, and how well swapping one of them meets the true mesh.

Every mesh (subject, pose) with every donor of another subject and pose: taking the donor's pose and keeping the subject
should give (subject, the donor's pose), which the grid has. The autoencoder is the same network without PMP's terms;
there the coordinates that tell most of the pose are taken, as many as PMP's part has in each run.
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
from unbraid.methods.pmp import PMP
from unbraid.pictures.subspaces import swap_subspaces
from unbraid.runs.run import Run

HERE = Path(__file__).parent
RESULT, PICTURE = HERE / "results" / "bench_bodies_pmp.json", HERE.parent / "docs" / "pictures" / "bodies_swapping.png"
VERTICES, BATCH, LATENTS, RATE = 1229, 32, 10, 3e-3
WEIGHTS = {"distance": 0.6, "consistency": 3.0}
NONE = {"distance": 0.0, "sparsity": 0.0, "consistency": 0.0, "regularisation": 0.0}
MILLIMETRES = 1000


@dataclass(frozen=True)
class Grid:
    """The meshes of subjects in poses, and all swaps: examples, donors of another subject and pose, and the truth."""

    meshes: Float[Tensor, "n v 3"]
    subject: Tensor
    pose: Tensor
    example: Tensor
    donor: Tensor
    truth: Tensor

    @classmethod
    def of(cls, data: Bodies) -> Grid:
        subject, pose = data.factors(slice(None)).T
        apart = (subject[:, None] != subject) & (pose[:, None] != pose)
        example, donor = apart.nonzero().T
        truth = data.index(torch.stack([subject[example], pose[donor]], 1))
        return cls(data.table.unflatten(1, (-1, 3)), subject, pose, example, donor, truth)

    def error(self, found: Float[Tensor, "n v 3"], truth: Tensor) -> float:
        """The mean distance of vertices from those of the meshes at `truth`, in millimetres."""
        return MILLIMETRES * float((found - self.meshes[truth]).norm(dim=2).mean())

    def swapped(self, run: Run, parts: Float[Tensor, "n k d"], taken: Bool[Tensor, " k"]) -> float:
        """The error of examples decoded with the parts that are `taken` from donors."""
        z = torch.where(taken[:, None], parts[self.donor], parts[self.example]).sum(1)
        return self.error(run.decode(z).unflatten(1, (-1, 3)), self.truth)

    def told(self, code: Float[Tensor, "n d"]) -> dict[str, float]:
        """How often the nearest code of another pose has the same subject, and of another subject the same pose."""
        apart = torch.cdist(code, code)
        pairs = {"subject": (self.subject, self.pose), "pose": (self.pose, self.subject)}
        found = {}
        for name, (label, other) in pairs.items():
            nearest = apart.masked_fill(other[:, None] == other, torch.inf).argmin(1)
            found[name] = float((label[nearest] == label).float().mean())
        return found

    def baselines(self) -> dict[str, float]:
        """Errors without any code: the example as it is, the donor as it is, the mean of all meshes."""
        everything = torch.arange(len(self.meshes))
        mean = self.meshes.mean(0, keepdim=True).expand_as(self.meshes)
        return {
            "example_kept": self.error(self.meshes[self.example], self.truth),
            "donor_taken": self.error(self.meshes[self.donor], self.truth),
            "mean_mesh": self.error(mean, everything),
        }

    def rebuilt(self, run: Run, code: Float[Tensor, "n d"]) -> float:
        """The error of all meshes decoded from their own codes."""
        return self.error(run.decode(code).unflatten(1, (-1, 3)), torch.arange(len(self.meshes)))


def measure(run: Run, grid: Grid, data: Bodies) -> dict[str, Any]:
    """The figures of a run of PMP with two subspaces; the one that tells the pose better is the pose's."""
    method = run.spec.method
    assert isinstance(method, PMP)
    parts = method.project(run.net, run.posterior(data.table))
    told = [grid.told(part) for part in parts.unbind(1)]
    chosen = max(range(len(told)), key=lambda i: told[i]["pose"])
    taken = torch.arange(len(told)) == chosen
    spread = parts.std(0)
    return {
        "seed": run.spec.seed,
        "reconstruction_mm": grid.rebuilt(run, parts.sum(1)),
        "told_by_subspace": told,
        "pose_subspace": chosen,
        "pose_coordinates": int((spread.argmax(0) == chosen).sum()),
        "swapped_mm": grid.swapped(run, parts, taken),
    }


def measure_plain(run: Run, grid: Grid, data: Bodies, count: int) -> dict[str, Any]:
    """The figures of an autoencoder whose `count` coordinates that tell most of the pose are taken."""
    code = run.encode(data.table)
    cells = code.unflatten(0, data.sizes)
    share = cells.mean(0).var(0) / (cells.mean(1).var(0) + cells.mean(0).var(0))
    taken = torch.zeros(code.shape[1], dtype=torch.bool)
    taken[share.argsort(descending=True)[:count]] = True
    return {
        "seed": run.spec.seed,
        "reconstruction_mm": grid.rebuilt(run, code),
        "told": grid.told(code),
        "coordinates_taken": count,
        "swapped_mm": grid.swapped(run, torch.diag_embed(code), taken),
    }


def trained(weights: dict[str, Any], data: Bodies, seeds: range, steps: int) -> list[Run]:
    """Runs with two subspaces of pairs that share the subject or the pose."""
    method = PMP(pairs="sharing", subspaces=2, horizon=float(steps), **weights)
    return ub.train(
        method, data=data, seeds=seeds, steps=steps, batch=BATCH, learning_rate=RATE, latents=LATENTS,
        net="unbraid.nets.pointnet:pointnet", likelihood="gaussian",
    )  # fmt: skip


def draw(run: Run, data: Bodies) -> None:
    """The picture of the page: one body with the subspaces of others, all of other subjects in other poses."""
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
    grid, clock = Grid.of(data), time.perf_counter()
    runs = trained(WEIGHTS, data, seeds, options.steps)
    seconds = time.perf_counter() - clock
    found = [measure(run, grid, data) for run in runs]
    (bare,) = trained(NONE, data, seeds[:1], options.steps)
    plain = [measure_plain(bare, grid, data, one["pose_coordinates"]) for one in found]
    settings = {"batch": BATCH, "latents": LATENTS, "learning_rate": RATE, "steps": options.steps, **WEIGHTS}
    figures = {"settings": settings, "seconds": seconds, "baselines_mm": grid.baselines()}
    RESULT.write_text(json.dumps({**describe(), **figures, "pmp": found, "autoencoder": plain}, indent=2) + "\n")
    best = min(range(len(runs)), key=lambda i: float(found[i]["swapped_mm"]))
    draw(runs[best], data)
    table(found, plain, grid.baselines(), seconds)


def table(found: list[dict[str, Any]], plain: list[dict[str, Any]], baselines: dict[str, float], secs: float) -> None:
    """What is on the page."""
    print(f"{len(found)} runs of PMP in {secs:.0f} s; errors in mm")
    print("without a code: " + ", ".join(f"{name} {value:.0f}" for name, value in baselines.items()))
    for name, rows in (("pmp", found), ("autoencoder", plain)):
        for row in rows:
            told = row.get("told_by_subspace") or [row["told"]]
            words = "; ".join(f"subject {one['subject']:.2f} pose {one['pose']:.2f}" for one in told)
            part = row.get("pose_coordinates") or row["coordinates_taken"]
            print(
                f"{name} seed {row['seed']}: rebuilt {row['reconstruction_mm']:.0f}, swapped {row['swapped_mm']:.0f} "
                f"with {part} coordinates; "
                f"nearest neighbour tells {words}"
            )


if __name__ == "__main__":
    main()
