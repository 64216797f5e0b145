"""CPU seconds of the nine metric configurations of the study: ours against the estimators of scikit-learn on one core.

The representation has 10 dimensions and the dSprites factors (3, 6, 40, 32, 32), with 10,000 training points and 5,000
test points. Compilation is timed separately: every metric is called once before it is measured. Then 64 runs of one
small study are scored with `unbraid.score`, and the number of busy cores is reported. `--add NAME` measures only a
metric that is not among the nine, and adds its seconds to the existing results.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from machine import describe
from reference_metrics import CONFIGURATIONS, Array, Reference, ignore_warnings
from unbraid.metrics import METRICS
from unbraid.metrics.protocol import Protocol, Rows

RESULT = Path(__file__).parent / "results" / "bench_metrics.json"
STUDY = Path(__file__).parent / "results" / "bench_metrics_study.json"
SIZES = (3, 6, 40, 32, 32)
OURS: dict[str, list[str]] = {name: [name] for name in CONFIGURATIONS} | {
    "modularity_explicitness": ["modularity", "explicitness"]
}

NAMES = [name for part in OURS.values() for name in part]


def encoder(seed: int = 0) -> Callable[[Array], Array]:
    """Return an encoder: centred factors times a random 5 x 10 matrix, plus noise that is a function of the factors.

    The standard deviation of the noise is about 0.1.
    """
    rng = np.random.default_rng(seed)
    mixing, phase = rng.normal(size=(5, 10)), rng.normal(size=(5, 10)) * 1000
    half = (np.array(SIZES) - 1) / 2

    def encode(factors: Array) -> Array:
        return np.asarray((factors - half) / half @ mixing + 0.14 * np.sin(factors @ phase), np.float32)

    return encode


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call, and its result."""
    begun = time.process_time()
    answer = work()
    return time.process_time() - begun, answer


def ours(rows: Rows, names: list[str]) -> dict[str, Any]:
    """Return CPU seconds and scores of our metrics, called as in `unbraid.score`: equal fits are computed once."""
    begun: dict[str, float] = {}

    def start(name: str) -> None:
        begun[name] = time.process_time()

    total, outcome = cpu(lambda: rows.score(names, 0, start))
    ends = [*list(begun.values())[1:], begun[names[0]] + total]
    seconds = {name: end - begin for (name, begin), end in zip(begun.items(), ends, strict=True)}
    return {"seconds": seconds, "total": total, "scores": outcome.values_or_raise()}


def reference(encode: Callable[[Array], Array], train: int, test: int) -> dict[str, Any]:
    """Return CPU seconds and scores of the estimators of the reference protocol."""
    ignore_warnings()
    seconds, scores = {}, {}
    for name in CONFIGURATIONS:
        seconds[name], scores[name] = cpu(getattr(Reference(SIZES, encode, 0, train, test), name))
        print(f"reference {name}: {seconds[name]:.2f} s", flush=True)
    return {"seconds": seconds, "total": sum(seconds.values()), "scores": scores}


def study(count: int) -> dict[str, Any]:
    """Return wall and CPU seconds of scoring untrained runs with all nine configurations by `unbraid.score`."""
    import unbraid as ub

    runs = ub.train(ub.methods.VAE(), data="sprites", seeds=range(count), steps=0, quiet=True)
    before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    begun = time.perf_counter()
    ub.score(runs, NAMES, codes=["mean"], quiet=True)
    wall = time.perf_counter() - begun
    _end_workers()
    after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    used = sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after, strict=True))
    cores = len(os.sched_getaffinity(0))
    return {"runs": count, "wall_seconds": wall, "cpu_seconds": used, "cores": cores, "cores_busy": used / wall}


def _end_workers() -> None:
    """End the worker processes: the CPU time of a child process is counted only after it has ended."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


def main() -> None:
    """Measure, print ratios and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=int, default=10_000)
    parser.add_argument("--test", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=64, help="number of runs of the small study; 0 skips it")
    parser.add_argument("--no-reference", action="store_true", help="run only the small study")
    parser.add_argument("--add", metavar="A,B", help="measure only these metrics, and add them to the existing results")
    options = parser.parse_args()
    if options.add:
        add(options.add.split(","), options.train, options.test)
        return
    if options.runs:
        busy = study(options.runs)
        print("{runs} runs: {wall_seconds:.1f} s, {cores_busy:.2f} of {cores} cores busy".format(**busy), flush=True)
        STUDY.write_text(json.dumps({**describe(), **busy}, indent=1) + "\n")
    if not options.no_reference:
        RESULT.write_text(json.dumps({**describe(), **compare(options.train, options.test)}, indent=1) + "\n")


def encoded_rows(encode: Callable[[Array], Array], train: int, test: int) -> Rows:
    """Return the table and samples on which all metrics are measured. They are drawn as in the reference."""
    zero_rows = Protocol(train, test, draws="reference").rows_with_zero_codes(SIZES, 10)
    return zero_rows.with_codes(encode(zero_rows.factors))


def add(names: list[str], train: int, test: int) -> None:
    """Measure some metrics, each without the fits of the others, and add their seconds to the file of results."""
    rows, results = encoded_rows(encoder(), train, test), json.loads(RESULT.read_text())
    with threadpool_limits(1):
        numba.set_num_threads(1)
        for name in names:
            ours(rows, [name])  # compiles
            results["others"] |= ours(rows, [name])["seconds"]
            print(f"{name}: {results['others'][name]:.2f} s", flush=True)
    results["added"] = results.get("added", {}) | dict.fromkeys(names, describe())
    RESULT.write_text(json.dumps(results, indent=1) + "\n")


def compare(train: int, test: int) -> dict[str, Any]:
    """Compare our estimators with those of the reference on one representation and one core."""
    encode = encoder()
    rows = encoded_rows(encode, train, test)
    with threadpool_limits(1):
        numba.set_num_threads(1)
        first, mine = ours(rows, NAMES), ours(rows, NAMES)
        mine["first_call_seconds"] = first["total"]
        others = ours(rows, [name for name in METRICS if name not in NAMES])["seconds"]
        print(f"ours: {mine['total']:.2f} s; first call, including loading or compiling code: {first['total']:.1f} s")
        theirs = reference(encode, train, test)
    report(mine, theirs)
    ratio = mine["total"] / theirs["total"]
    about = {"threads": 1, "train": train, "test": test}
    return {**about, "ours": mine, "others": others, "reference": theirs, "ratio": ratio}


def report(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Print seconds and ratios."""
    for name, parts in OURS.items():
        seconds = sum(mine["seconds"][part] for part in parts)
        print(f"{name:24} {seconds:8.3f} s {theirs['seconds'][name]:8.2f} s  1/{theirs['seconds'][name] / seconds:.0f}")
    print(f"{'total':24} {mine['total']:8.3f} s {theirs['total']:8.2f} s  1/{theirs['total'] / mine['total']:.0f}")


if __name__ == "__main__":
    main()
