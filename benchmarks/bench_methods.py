"""Every method on `sprites`, trained as its page in docs/methods says: a picture of what it learned, and its scores.

Two seeds a method on the CPU, about a minute each on two cores. The picture is of seed 0, whatever it shows: a
traversal, or for a method without a decoder how much each code tells of each factor. Writes
docs/pictures/methods/NAME.png and brings NAME up to date in results/bench_methods.json; other methods there stay, each
with its own commit and machine.
Run: python benchmarks/bench_methods.py [--methods beta_vae pcl] [--keep runs/methods]
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import unbraid as ub
from machine import describe
from unbraid import methods
from unbraid.data import FactorData, load
from unbraid.methods import METHODS, Method
from unbraid.metrics import headline
from unbraid.metrics.bounds import bounds
from unbraid.metrics.information import discretise, entropy, mutual_information
from unbraid.metrics.protocol import Protocol
from unbraid.pictures.images import labelled_grid, tile_scale, write_picture
from unbraid.pictures.traversal import decode_traversal
from unbraid.runs.spec import registry_name
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.progress import progress

ROOT = Path(__file__).parents[1]
SCORES = ("mig", "dci", "factor_vae", "sap", "modularity")
DATA, SEEDS, STEPS, RATE = "sprites", (0, 1), 1_600, 1e-3
COLUMNS, SPAN, SCALE = 9, 2.0, 2  # of a traversal: positions, their reach, and screen pixels a pixel
GREYS = 24  # of a picture: enough for the eye, few enough for a small file
UNTRAINED = "untrained"


@dataclass(frozen=True)
class Case:
    """How a method is trained for its page."""

    method: Method
    steps: int = STEPS
    latents: int = 6
    net: str | None = None

    def settings(self) -> dict[str, Any]:
        """What `train` is called with."""
        return {"steps": self.steps, "learning_rate": RATE, "latents": self.latents, "net": self.net}

    def command(self) -> str:
        """The same on the command line."""
        name = registry_name(type(self.method))
        changed = [(f.name, getattr(self.method, f.name)) for f in dataclasses.fields(self.method)
                   if getattr(self.method, f.name) != f.default]  # fmt: skip
        own = [f"--{key.replace('_', '-')} {f'{v:g}' if isinstance(v, float) else v}" for key, v in changed]
        shared = f"--seeds 0-1 --steps {self.steps} --learning-rate {RATE:g} --latents {self.latents}"
        net = [f"--net {self.net}"] if self.net else []
        return " ".join([f"unbraid train {name} --data {DATA}", *own, shared, *net, f"--out runs/{name}"])


CASES: dict[str, Case] = {
    "ae": Case(methods.AE()),
    "vae": Case(methods.VAE()),
    "beta_vae": Case(methods.BetaVAE(beta=8.0)),
    "annealed_vae": Case(methods.AnnealedVAE(gamma=30.0, c_max=10.0, iteration_threshold=1_200.0)),
    "factor_vae": Case(methods.FactorVAE(gamma=10.0, critic_learning_rate=1e-3), steps=1_000),
    "beta_tcvae": Case(methods.BetaTCVAE(beta=8.0, estimator="stratified")),
    "dip_vae_i": Case(methods.DIPVAEI()),
    "dip_vae_ii": Case(methods.DIPVAEII()),
    "ada_gvae": Case(methods.AdaGVAE(beta=4.0)),
    "ada_mlvae": Case(methods.AdaMLVAE(beta=4.0)),
    "slow_vae": Case(methods.SlowVAE()),
    "pcl": Case(methods.PCL(), steps=2_400),
    "pmp": Case(methods.PMP(subspaces=6, horizon=1_200.0), steps=1_200),
    "diffusion_vae": Case(methods.DiffusionVAE(beta=0.5, walk_steps=5), latents=7),
    "u_vitae": Case(methods.UVITAE(), steps=2_000, net="vitae_mlp_half"),
    "c_vitae": Case(methods.CVITAE(), steps=2_000, net="vitae_mlp_half"),
}


def greyed(picture: Image.Image) -> bytes:
    """A small PNG."""
    levels = np.asarray(picture.convert("L")).astype(float) / 255 * (GREYS - 1)
    palette = np.linspace(0, 255, GREYS).round().astype(np.uint8).repeat(3)
    small = Image.fromarray(levels.round().astype(np.uint8), "P")
    small.putpalette(palette.tobytes())
    return encode_picture([small])


def traversal(run: ub.Run, data: FactorData) -> bytes:
    """A row a latent from the middle of the grid, under the example and its reconstruction."""
    example = int(data.index([[size // 2 for size in data.sizes]])[0])
    found = decode_traversal(run, data, example, torch.linspace(-SPAN, SPAN, COLUMNS))
    rows = [(label, list(images)) for label, images in zip(found.labels, found.images, strict=True)]
    return greyed(labelled_grid([("example,\ndecoded", [found.original, found.reconstruction]), *rows], SCALE))


def told(run: ub.Run, data: FactorData) -> np.ndarray[Any, Any]:
    """The share of each factor's entropy that each code tells, (codes, factors)."""
    index = np.arange(len(data))
    codes, factors = run.encode(data.images(index)).cpu().numpy(), data.factors(index).cpu().numpy()
    share: np.ndarray[Any, Any] = mutual_information(discretise(codes), factors) / entropy(factors)
    return share


def heat_map(run: ub.Run, data: FactorData) -> bytes:
    """Codes against factors; black is all of a factor's entropy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    share = told(run, data)
    figure, axes = pyplot.subplots(figsize=(5.6, 4.2), dpi=100, layout="constrained")
    axes.imshow(share, vmin=0, vmax=1, cmap="Greys", aspect="auto")
    for (i, j), value in np.ndenumerate(share):
        axes.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.5 else "black")
    axes.set_xticks(range(len(data.names)), data.names)
    axes.set_yticks(range(len(share)), [f"code {i}" for i in range(len(share))])
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())  # type: ignore[attr-defined]
    pyplot.close(figure)
    return greyed(picture)


def scored(runs: list[ub.Run], data: FactorData) -> dict[str, list[float]]:
    """Headline scores of the code that metrics see by default, a number a seed."""
    rows = ub.score(runs, SCORES, data=data, codes=runs[0].spec.method.code_kinds[:1], quiet=True)
    return {name: [row[headline(name)] for row in rows] for name in SCORES}


def measure(name: str, case: Case, data: FactorData, keep: Path | None, pictures: Path) -> dict[str, Any]:
    """Train, score and draw one method."""
    out = None if keep is None else keep / name
    runs = ub.train(case.method, data, seeds=SEEDS, out=out, add=True, quiet=True, **case.settings())
    if name != UNTRAINED:
        draw = heat_map if runs[0].net.decoder is None else traversal
        write_atomic(pictures / f"{name}.png", draw(runs[0], data))
    code = runs[0].spec.method.code_kinds[0]
    diverged = sum(run.divergence is not None for run in runs)
    return {**describe(), "command": case.command(), "steps": case.steps, "latents": case.latents, "code": code,
            "diverged": diverged, "scores": scored(runs, data)}  # fmt: skip


def record(path: Path, name: str, row: dict[str, Any], data: FactorData) -> None:
    """Bring one method up to date among those measured before; beside them, what perfect and noisy codes score.

    Several processes may measure different methods at once.
    """
    limits = bounds(Protocol().rows_with_zero_codes(data.sizes, CASES["vae"].latents), SCORES)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = json.loads(path.read_text())["methods"] if path.exists() else {}
        found[name] = row
        ordered = {one: found[one] for one in (UNTRAINED, *METHODS) if one in found}
        content = {"data": DATA, "seeds": list(SEEDS), "bounds": limits, "methods": ordered}
        write_atomic(path, (json.dumps(content, indent=1) + "\n").encode())
    path.with_suffix(".lock").unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = {UNTRAINED: Case(methods.VAE(), steps=0), **CASES}
    parser.add_argument("--methods", nargs="*", choices=cases, default=list(cases), help="some of them [all]")
    parser.add_argument("--keep", type=Path, help="folder for the runs, from which an interrupted benchmark goes on")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "bench_methods.json")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures" / "methods")
    options = parser.parse_args()
    make_folder(options.pictures)
    data = load(DATA)
    with progress("methods", len(options.methods)) as report:
        for i, name in enumerate(options.methods):
            report(i, name)
            row = measure(name, cases[name], data, options.keep, options.pictures)
            record(options.results, name, row, data)
            scores = "  ".join(f"{metric} {np.mean(values):.3f}" for metric, values in row["scores"].items())
            print(f"{name:14} {scores}", flush=True)


if __name__ == "__main__":
    main()
