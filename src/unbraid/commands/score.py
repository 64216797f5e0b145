"""Score trained runs, or any codes and factors (.npy, .npz or .csv, one row an example)."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unbraid.cli import Parser
from unbraid.commands.tables import labels, table
from unbraid.errors import Refusal
from unbraid.files import write_atomic
from unbraid.metrics import HEADLINE, METRICS, WHOLE_TABLE
from unbraid.metrics.protocol import Array, Rows, chosen


def add_arguments(parser: Parser) -> None:
    parser.add_argument("runs", nargs="?", type=Path, help="a folder of runs, or one run")
    parser.add_argument("--codes", type=Path, help="instead of runs: codes (n, d)")
    parser.add_argument("--factors", type=Path, help="with --codes: factor values (n, k), whole numbers")
    parser.add_argument("--metrics", help=f"comma list of {', '.join(METRICS)} [all]")
    parser.add_argument("--train", type=int, default=10_000, help="rows to learn from [10000]")
    parser.add_argument("--test", type=int, default=5_000, help="rows to test on [5000]")
    parser.add_argument("--table", type=int, default=65_536, help="examples to encode, of a larger grid [65536]")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling [0]")
    parser.add_argument("--json", action="store_true", help="print every score as JSON")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write every score to a CSV file")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def main(parser: Parser, arguments: Sequence[str]) -> None:
    add_arguments(parser)
    options = parser.parse_all(arguments)
    names = chosen(options.metrics.split(",") if options.metrics else None, METRICS)
    for flag in ("train", "test", "table"):
        if getattr(options, flag) < 2:
            raise Refusal(f"--{flag} must be at least 2. Got {getattr(options, flag)} instead.")
    if (options.codes is None) != (options.factors is None) or (options.codes is None) == (options.runs is None):
        raise Refusal("Give either a folder of runs, or both --codes and --factors. See: unbraid score --help")
    rows = score_arrays(options, names) if options.codes else score_runs(options, names)
    if options.csv:
        write_atomic(options.csv, as_csv(rows).encode())
    print(json.dumps(rows, indent=1) if options.json else summary(rows, names))


def score_runs(options: argparse.Namespace, names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of all trained runs in the folder."""
    from unbraid.run import load_runs
    from unbraid.scoring import Protocol, score
    from unbraid.store import find_runs

    found = find_runs(options.runs)
    runs = load_runs(options.runs)
    whole = [run for run in runs if run.divergence is None]
    left = f"{len(runs) - len(whole)} diverged, {len(found) - len(runs)} not trained to the end"
    if not whole:
        raise Refusal(f"No run in {options.runs} can be scored: {left}.")
    if len(whole) < len(found):
        print(f"unbraid: left out: {left}.", file=sys.stderr)
    protocol = Protocol(options.train, options.test, options.table, options.seed)
    return score(whole, names, protocol=protocol, quiet=options.quiet)


def score_arrays(options: argparse.Namespace, names: Sequence[str]) -> list[dict[str, Any]]:
    """One row of scores for arrays from files."""
    codes, factors = read_array(options.codes, "codes"), read_array(options.factors, "factors")
    if len(codes) != len(factors):
        raise Refusal(f"Codes and factors must have the same number of rows. Got {len(codes)} in {options.codes} and "
                      f"{len(factors)} in {options.factors}. Row i of both must be the same example.")  # fmt: skip
    rows = Rows.split(codes, factors, options.train, options.test, options.seed)
    scores = {name: rows.score(METRICS[name], name in WHOLE_TABLE, options.seed) for name in names}
    flat = {f"{name}.{key}": value for name, values in scores.items() for key, value in values.items()}
    return [{"label": str(options.codes), "rows": len(codes), **flat}]


def read_array(path: Path, name: str) -> Array:
    """A 2-d array of numbers from .npy, .npz (its only array, or the one called `name`) or .csv (header optional)."""
    try:
        array = READERS[path.suffix.lower()](path, name)
    except KeyError:
        raise Refusal(f"--{name} must be a .npy, .npz or .csv file. Got {path} instead.") from None
    except (OSError, ValueError) as error:
        raise Refusal(f"{path} cannot be read as numbers: {error}.") from error
    return array[:, None] if array.ndim == 1 else array


def _read_npz(path: Path, name: str) -> Array:
    with np.load(path, allow_pickle=False) as content:
        keys = list(content)
        if name not in keys and len(keys) != 1:
            raise ValueError(f"it must hold one array or one called {name!r}, but holds {', '.join(keys) or 'none'}")
        found: Array = content[name if name in keys else keys[0]]
        return found


def _read_npy(path: Path, name: str) -> Array:
    found: Array = np.load(path, allow_pickle=False)
    return found


def _read_csv(path: Path, name: str) -> Array:
    lines = path.read_text().splitlines()
    try:
        [float(v) for v in lines[0].split(",")] if lines else []
        skip = 0
    except ValueError:
        skip = 1
    return np.loadtxt(lines[skip:], delimiter=",", ndmin=2)


READERS = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv}


def summary(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """A table with each metric's headline, and the sampled codes' where it differs in meaning."""
    columns = [f"{name}.{HEADLINE[name]}" for name in names]
    heads = list(names)
    sampled = "unsupervised.gaussian_total_correlation.sampled"
    if any(sampled in row for row in rows):
        columns, heads = [*columns, sampled], [*heads, "(sampled)"]
    heads = [{"unsupervised": "total corr."}.get(head, head) for head in heads]
    if "run" not in rows[0]:
        return table(["codes", *heads], [[row["label"], *(row[c] for c in columns)] for row in rows])
    body = [[row["run"], label, *(row[c] for c in columns)] for row, label in zip(rows, labels(rows), strict=True)]
    return table(["run", "settings", *heads], body)


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Every column of every row."""
    fields = list(dict.fromkeys(key for row in rows for key in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
