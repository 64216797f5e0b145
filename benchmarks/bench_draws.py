"""Compare scores of metrics when test rows may be training rows (draws "reference") and when not ("disjoint").

The same trained runs are scored with both protocols. So is noise, whose accuracies should be at chance level. The
scores of metrics without a test set differ too, because their sample is drawn with or without replacement. Run:

    python benchmarks/bench_draws.py --data sprites --steps 2000
    python benchmarks/bench_draws.py --data dsprites --steps 500
    python benchmarks/bench_draws.py --data cars3d --steps 500
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import unbraid as ub
from machine import describe
from unbraid.metrics import METRICS as ALL_METRICS
from unbraid.metrics import headline
from unbraid.metrics.bounds import bounds
from unbraid.metrics.protocol import DRAWS, Protocol

METRICS = [name for name in ALL_METRICS if name not in ("unsupervised", "factorised_support")]  # all that take factors
COLUMNS = [headline(name) for name in METRICS] + ["dci.informativeness_test"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="sprites")
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    data = ub.data.load(options.data)
    runs = ub.train(ub.methods.BetaVAE(beta=2.0), data, seeds=range(options.seeds), steps=options.steps)
    content = {"data": options.data, "steps": options.steps, "seeds": options.seeds, **describe()}
    for draws in DRAWS:
        rows = ub.score(runs, METRICS, data=data, codes=["mean"], protocol=Protocol(draws=draws))
        blank = Protocol(draws=draws).rows_with_zero_codes(data.sizes, runs[0].spec.latents)
        noise = bounds(blank, METRICS)["noise"]
        flat = {f"{name}.{key}": value for name, values in noise.items() for key, value in values.items()}
        means = {column: sum(row[column] for row in rows) / len(rows) for column in COLUMNS}
        content[draws] = {"runs": means, "noise": {column: flat[column] for column in COLUMNS}}
    print(f"{'score':42}{'runs: reference':>18}{'disjoint':>10}{'noise: reference':>18}{'disjoint':>10}")
    for column in COLUMNS:
        cells = [content[draws][kind][column] for kind in ("runs", "noise") for draws in reversed(DRAWS)]
        print(f"{column:42}{cells[0]:18.3f}{cells[1]:10.3f}{cells[2]:18.3f}{cells[3]:10.3f}")
    file = options.results / f"bench_draws_{options.data.partition('?')[0]}.json"
    file.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
