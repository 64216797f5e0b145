"""Evaluate learned manipulations of a dataset without training VAEs, by the gap of rotated factors and by alignment.

Learns one manipulation per seed. Then it computes `manipulation.measure_gap` with new decoders and `analysis.alignment`
for the original data, for noise of equal strength, for each manipulation, and for controls made from the first one: its
patterns in the order of one of the rotated factors, and its mean pattern on every image. Writes
results/bench_manipulation_DATA.json after each of these, and optionally a picture of the first manipulation.
Run: python benchmarks/bench_manipulation.py [--data dsprites --steps 10000 --batch 64 --samples 4 --lessons 4000
--device cuda]. With --files FILE existing manipulations are evaluated; --batch and --samples are then those of the new
decoders.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import unbraid as ub
from machine import describe as machine
from unbraid.data import FactorData, load
from unbraid.data.manipulated import ManipulatedImages, add_fixed_noise, apply_manipulation
from unbraid.data.manipulation_files import describe_data, read_manipulation, write_manipulation
from unbraid.manipulation import draw_comparison, measure_gap
from unbraid.runtime.files import make_folder, write_atomic

RESULTS = Path(__file__).parent / "results"


def patterns_by_factor(data: FactorData, file: Path, factor: str, keep: Path) -> ManipulatedImages:
    """Return a control: the same patterns, equally often, in the order of one factor."""
    tensors, facts = read_manipulation(file)
    order = data.factors(slice(None))[:, data.names.index(factor)].argsort(stable=True).cpu()
    which = torch.empty_like(tensors["which"])
    which[order] = tensors["which"].sort().values
    return write_control(data, keep / f"{file.stem}_{factor}.safetensors", tensors["patterns"], which, facts)


def mean_pattern(data: FactorData, file: Path, keep: Path) -> ManipulatedImages:
    """Return a control: the mean pattern of all examples on every image."""
    tensors, facts = read_manipulation(file)
    share = torch.bincount(tensors["which"].long(), minlength=len(tensors["patterns"])) / len(tensors["which"])
    mean = torch.einsum("p,pchw->chw", share, tensors["patterns"].float()).round().to(torch.int8)
    which = torch.zeros_like(tensors["which"])
    return write_control(data, keep / f"{file.stem}_constant.safetensors", mean[None], which, facts)


def write_control(data: FactorData, path: Path, patterns: Any, which: Any, facts: dict[str, Any]) -> ManipulatedImages:
    write_manipulation(path, patterns, which, {**describe_data(data), "eps": facts["eps"]})
    return apply_manipulation(data, path)


def measure_form(data: FactorData, original: Any, rotations: Any, options: Any) -> dict[str, Any]:
    """Measure gap and alignment of one form of the data."""
    lessons = {"steps": options.lessons, "batch": options.batch, "samples": options.samples}
    found: dict[str, Any] = {
        "gap": measure_gap(data, rotations=rotations, device=options.device, **lessons),
        "alignment": {},
    }
    for reach in options.reach:
        score = ub.analysis.alignment(data.to("cpu"), reach=reach)
        less, error = original[reach].difference_from(score)
        found["alignment"][f"{reach:g}"] = {"score": score.score, "less": less, "error": error}
    return found


def learn_manipulations(data: FactorData, options: Any) -> list[Path]:
    """Learn one manipulation per seed and return the files."""
    settings = {"steps": options.steps, "batch": options.batch, "samples": options.samples, "device": options.device}
    return [
        ub.modify(data, quiet=True, out=options.keep / f"{data.name}_{seed}.safetensors", seed=seed, **settings)
        for seed in range(options.seeds)
    ]


def forms_of_data(data: FactorData, files: list[Path], facts: dict[str, Any], keep: Path) -> dict[str, FactorData]:
    """Return the original data, the noise control, the manipulations and the controls made from the first of them."""
    forms = {"original": data, f"noise, eps {facts['eps']:g}": add_fixed_noise(data, facts["eps"])}
    seeds = [read_manipulation(file, tensors=False)[1]["recipe"]["seed"] for file in files]
    forms |= {f"modified, seed {seed}": apply_manipulation(data, file) for seed, file in zip(seeds, files, strict=True)}
    orders = {name: patterns_by_factor(data, files[0], name, keep) for name in facts["recipe"]["rotations"][0][0]}
    forms |= {f"patterns of seed {seeds[0]} in the order of {name}": form for name, form in orders.items()}
    return forms | {f"mean pattern of seed {seeds[0]}": mean_pattern(data, files[0], keep)}


def parse_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="sprites")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--lessons", type=int, default=400, help="steps of the new decoders")
    parser.add_argument("--reach", type=float, nargs="*", default=[0.3, 0.5], help="reach of the alignment")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--files", type=Path, nargs="*", help="existing manipulations [default: learn them]")
    parser.add_argument("--keep", type=Path, default=Path("manipulations"), help="folder of the manipulations")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    return parser.parse_args()


def main() -> None:
    """Learn, measure, print one line per form of the data, and write the results."""
    options = parse_options()
    make_folder(options.keep)
    data, start = load(options.data, device=options.device), time.perf_counter()
    files = options.files or learn_manipulations(data, options)
    facts = read_manipulation(files[0], tensors=False)[1]
    if options.picture:
        draw_comparison(apply_manipulation(data, files[0]), options.picture)
    training = {name: facts["recipe"][name] for name in ("steps", "batch", "samples")}
    lessons = {"lessons": options.lessons, "lesson_batch": options.batch, "lesson_samples": options.samples}
    content = {**machine(), "data": options.data, **training, **lessons, "recipe": facts["recipe"]}
    content["training_seconds"] = None if options.files else time.perf_counter() - start
    rotations = [tuple(plane) for plane in facts["recipe"]["rotations"][0]]
    original = {reach: ub.analysis.alignment(data.to("cpu"), reach=reach) for reach in options.reach}
    content["forms"] = {}
    for name, form in forms_of_data(data, files, facts, options.keep).items():
        content["forms"][name] = row = measure_form(form, original, rotations, options)
        scores = ", ".join(f"{reach} {cell['score']:.3f}" for reach, cell in row["alignment"].items())
        print(f"{name:42} gap {row['gap']['gap']:.3f} +- {row['gap']['error']:.3f}, alignment {scores}", flush=True)
        out = options.out / f"bench_manipulation_{options.data}.json"
        write_atomic(out, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
