"""Scores of a model of the zoo with samples of different sizes, which are drawn as in the large study.

Writes results/bench_sample_sizes.json. It takes a few minutes on one core.
Run: python benchmarks/bench_sample_sizes.py [--model dsprites/beta_vae --train 1000 2000 5000 10000]
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import unbraid as ub
from machine import describe
from unbraid.metrics.protocol import Protocol
from unbraid.runtime.files import write_atomic
from unbraid.zoo.catalogue import find_model

METRICS = ("mig", "dci", "factor_vae", "sap")


def scores(model: str, train: int) -> dict[str, float]:
    """Return the scores of a model with samples of `train` training rows and half as many test rows."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(find_model(model).path, Path(folder) / "model")
        (row,) = ub.score(copy, METRICS, protocol=Protocol(train, train // 2, draws="reference"), quiet=True)
    return {name: value for name, value in row.items() if name.partition(".")[0] in METRICS}


def main() -> None:
    """Score the model with each size, print the scores and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="dsprites/beta_vae")
    parser.add_argument("--train", type=int, nargs="+", default=[1_000, 2_000, 5_000, 10_000])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "bench_sample_sizes.json")
    options = parser.parse_args()
    rows = []
    for train in options.train:
        rows.append({"train": train, **scores(options.model, train)})
        print(", ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()), flush=True)
    content = {**describe(), "model": options.model, "rows": rows}
    write_atomic(options.out, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
