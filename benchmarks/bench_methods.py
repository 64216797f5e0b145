"""Train every method on `sprites` as its page in docs/methods says, and write a picture of the result and its scores.

There are two seeds per method, about a minute each on two CPU cores. The picture always shows seed 0: a traversal or,
for a method without a decoder, the information of each code about each factor. The benchmark writes
docs/pictures/methods/NAME.png and updates NAME in results/bench_methods.json. Other methods there are kept, each with
its own commit and machine.
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
from unbraid.pictures.examples import middle_example
from unbraid.pictures.images import write_picture
from unbraid.pictures.traversal import decode_traversal, draw_grid
from unbraid.runs.spec import registry_name
from unbraid.runtime.files import write_atomic
from unbraid.runtime.progress import progress

ROOT = Path(__file__).parents[1]
SCORES = ("mig", "dci", "factor_vae", "sap", "modularity")
DATA, SEEDS, STEPS, RATE = "sprites", (0, 1), 1_600, 1e-3
COLUMNS, SPAN, SCALE = 9, 2.0, 2  # of a traversal: positions, span, and screen pixels per pixel
MAX_ROWS = 12  # latents of a traversal
GREYS = 24  # grey levels of a picture, few for a small file
UNTRAINED = "untrained"
PROTOCOL = Protocol()  # of all scores in the results; change it only to measure all methods again


@dataclass(frozen=True)
class Case:
    """The training of a method for its page."""

    method: Method
    steps: int = STEPS
    latents: int = 6
    net: str | None = None

    def settings(self) -> dict[str, Any]:
        """Return the arguments of `train`."""
        return {"steps": self.steps, "learning_rate": RATE, "latents": self.latents, "net": self.net}

    def command(self) -> str:
        """Return the same training as a command."""
        name = registry_name(type(self.method))
        changed = [(f.name, getattr(self.method, f.name)) for f in dataclasses.fields(self.method)
                   if getattr(self.method, f.name) != f.default]  # fmt: skip
        own = [f"--{key.replace('_', '-')} {f'{v:g}' if isinstance(v, float) else v}" for key, v in changed]
        shared = f"--seeds 0-1 --steps {self.steps} --learning-rate {RATE:g} --latents {self.latents}"
        net = [f"--net {self.net}"] if self.net else []
        return " ".join([f"unbraid train {name} --data {DATA}", *own, shared, *net, f"--out runs/{name}"])


DYNAMIC = methods.DynamicVAE(c_max=10.0, iteration_threshold=800.0, kp=0.1, ki=0.02, beta_start=20.0)
JOINT = methods.JointVAE(gamma=30.0, c_max=10.0, iteration_threshold=1_200.0)
CASES: dict[str, Case] = {
    "ae": Case(methods.AE()),
    "pca": Case(methods.PCA(), steps=1),
    "ica": Case(methods.ICA(), steps=1),
    "ae_ica": Case(methods.AEICA()),
    "fsq": Case(methods.FSQ(), steps=1_000),
    "tripod": Case(methods.Tripod(), steps=200),
    "qlae": Case(methods.QLAE(), steps=1_000),
    "sae": Case(methods.SAE(k=8), steps=1_000, latents=256),
    "vae": Case(methods.VAE()),
    "beta_vae": Case(methods.BetaVAE(beta=8.0)),
    "annealed_vae": Case(methods.AnnealedVAE(gamma=30.0, c_max=10.0, iteration_threshold=1_200.0)),
    "joint_vae": Case(JOINT, latents=9),
    "control_vae": Case(methods.ControlVAE(c_max=10.0, iteration_threshold=800.0, kp=0.1, ki=0.01), steps=1_000),
    "dynamic_vae": Case(DYNAMIC, steps=1_000),
    "devae": Case(methods.DeVAE(beta_last=20.0), steps=500),
    "cascade_vae_c": Case(methods.CascadeVAEC(iteration_threshold=1_200.0)),
    "deft": Case(methods.DEFT(beta=20.0, beta_last=2.0, iteration_threshold=800.0), steps=1_000),
    "factor_vae": Case(methods.FactorVAE(gamma=10.0, critic_learning_rate=1e-3), steps=1_000),
    "beta_tcvae": Case(methods.BetaTCVAE(beta=8.0, estimator="stratified")),
    "dip_vae_i": Case(methods.DIPVAEI()),
    "dip_vae_ii": Case(methods.DIPVAEII()),
    "info_vae": Case(methods.InfoVAE()),
    "hfs": Case(methods.HFS(), steps=1_000),
    "dfc_vae": Case(methods.DFCVAE(), steps=500),
    "commutative_vae": Case(methods.CommutativeVAE()),
    "groupified_vae": Case(methods.GroupifiedVAE(beta=4.0, start=200), steps=500),
    "semi_vae": Case(methods.SemiVAE(), steps=1_000),
    "ivae": Case(methods.IVAE(factor=1), steps=1_000),
    "ice_beem": Case(methods.ICEBeeM(factor=1), steps=1_000),
    "ada_gvae": Case(methods.AdaGVAE(beta=4.0)),
    "ada_mlvae": Case(methods.AdaMLVAE(beta=4.0)),
    "group_vae": Case(methods.GroupVAE(beta=4.0), steps=1_000),
    "ml_vae": Case(methods.MLVAE(beta=4.0), steps=1_000),
    "triplet_vae": Case(methods.TripletVAE(), steps=1_000),
    "ada_tvae": Case(methods.AdaTVAE(gamma=10.0), steps=500),
    "slow_vae": Case(methods.SlowVAE()),
    "pcl": Case(methods.PCL(), steps=2_400),
    "cl_ica": Case(methods.ClICA(), steps=1_600),
    "pmp": Case(methods.PMP(subspaces=6, horizon=1_200.0), steps=1_200),
    "diffusion_vae": Case(methods.DiffusionVAE(beta=0.5, walk_steps=5), latents=7),
    "s_vae": Case(methods.SVAE(beta=0.5), steps=1_000, latents=7),
    "poincare_vae": Case(methods.PoincareVAE(beta=4.0), steps=500),
    "lsbd_vae": Case(methods.LSBDVAE(circles=1, labels=0, log_t_max=-1.0), steps=500),
    "u_vitae": Case(methods.UVITAE(), steps=2_000, net="vitae_mlp_half"),
    "c_vitae": Case(methods.CVITAE(), steps=2_000, net="vitae_mlp_half"),
}


def reduce_greys(picture: Image.Image) -> Image.Image:
    """Return the picture with few grey levels, which makes a small PNG file."""
    levels = np.asarray(picture.convert("L")).astype(float) / 255 * (GREYS - 1)
    palette = np.linspace(0, 255, GREYS).round().astype(np.uint8).repeat(3)
    small = Image.fromarray(levels.round().astype(np.uint8), "P")
    small.putpalette(palette.tobytes())
    return small


def draw_traversal(run: ub.Run, data: FactorData) -> Image.Image:
    """Draw one row per latent, from the middle of the grid, below the example and its reconstruction.

    Only the first `MAX_ROWS` latents are drawn.
    """
    found = decode_traversal(run, data, middle_example(data), torch.linspace(-SPAN, SPAN, COLUMNS))
    grid = draw_grid(found, SCALE)
    rows = 1 + run.spec.latents
    return reduce_greys(grid.crop((0, 0, grid.width, grid.height * min(rows, 1 + MAX_ROWS) // rows)))


def information_shares(run: ub.Run, data: FactorData) -> np.ndarray[Any, Any]:
    """Return the information of each code about each factor, divided by the entropy of the factor, (codes, factors)."""
    index = np.arange(len(data))
    codes, factors = run.encode(data.images(index)).cpu().numpy(), data.factors(index).cpu().numpy()
    share: np.ndarray[Any, Any] = mutual_information(discretise(codes), factors) / entropy(factors)
    return share


def draw_heat_map(run: ub.Run, data: FactorData) -> Image.Image:
    """Draw the information of codes about factors; black is the whole entropy of a factor."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    share = information_shares(run, data)
    figure, axes = pyplot.subplots(figsize=(5.6, 4.2), dpi=100, layout="constrained")
    axes.imshow(share, vmin=0, vmax=1, cmap="Greys", aspect="auto")
    for (i, j), value in np.ndenumerate(share):
        axes.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.5 else "black")
    axes.set_xticks(range(len(data.names)), data.names)
    axes.set_yticks(range(len(share)), [f"code {i}" for i in range(len(share))])
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())  # type: ignore[attr-defined]
    pyplot.close(figure)
    return reduce_greys(picture)


def headline_scores(runs: list[ub.Run], data: FactorData) -> dict[str, list[float]]:
    """Return the headline scores of the default code, one number per seed."""
    rows = ub.score(runs, SCORES, data=data, codes=runs[0].spec.method.code_kinds[:1], protocol=PROTOCOL, quiet=True)
    return {name: [row[headline(name)] for row in rows] for name in SCORES}


def measure(name: str, case: Case, data: FactorData, keep: Path | None, pictures: Path) -> dict[str, Any]:
    """Train, score and draw one method."""
    out = None if keep is None else keep / name
    runs = ub.train(case.method, data, seeds=SEEDS, out=out, add=True, quiet=True, **case.settings())
    if name != UNTRAINED:
        draw = draw_heat_map if runs[0].net.decoder is None else draw_traversal
        write_picture(pictures / f"{name}.png", draw(runs[0], data))
    code = runs[0].spec.method.code_kinds[0]
    diverged = sum(run.divergence is not None for run in runs)
    return {**describe(), "command": case.command(), "steps": case.steps, "latents": case.latents, "code": code,
            "diverged": diverged, "scores": headline_scores(runs, data)}  # fmt: skip


def record(path: Path, name: str, row: dict[str, Any], data: FactorData) -> None:
    """Update the results of one method, and the scores of perfect and of random codes.

    Several processes may measure different methods at the same time.
    """
    limits = bounds(PROTOCOL.rows_with_zero_codes(data.sizes, CASES["vae"].latents), SCORES)
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
    parser.add_argument("--methods", nargs="*", choices=cases, default=list(cases), help="the methods to measure [all]")
    parser.add_argument("--keep", type=Path, help="folder for the runs; an interrupted benchmark resumes from it")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "bench_methods.json")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures" / "methods")
    options = parser.parse_args()
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
