"""Score trained runs, or any codes and factors (.npy, .npz or .csv, one row an example)."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unbraid.cli.devices import add_device, check_device
from unbraid.cli.parser import Parser, add_root
from unbraid.cli.printing import blocks, labels
from unbraid.errors import UserError
from unbraid.metrics import METRICS, TRAITS
from unbraid.metrics.arrays import as_codes, as_factors
from unbraid.metrics.bounds import bounds
from unbraid.metrics.protocol import DRAWS, Array, Protocol, Rows, chosen, identity, samples_of, stamp
from unbraid.runs.scores import read_protocol
from unbraid.runtime.files import write_atomic
from unbraid.runtime.progress import progress

if TYPE_CHECKING:
    from unbraid.data.dataset import FactorData

BOUNDS = {"perfect": "a perfect code", "noise": "pure noise"}


def add_arguments(parser: Parser) -> None:
    parser.add_argument("runs", nargs="?", type=Path, help="a folder of runs, or one run")
    parser.add_argument("--codes", type=Path, help="instead of runs: codes (n, d)")
    parser.add_argument("--factors", type=Path, help="with --codes: factor values (n, k), whole numbers")
    parser.add_argument("--metrics", help=f"comma list of {', '.join(METRICS)} [all]")
    parser.add_argument("--train", type=int, help="rows to learn from, at most [10000]")
    parser.add_argument("--test", type=int, help="rows to test on, at most [5000]")
    parser.add_argument("--table", type=int, help="examples to encode, of a larger grid [65536]")
    parser.add_argument("--seed", type=int, help="of the sampling [0]")
    draws = "disjoint: no test row is a training row; reference: with replacement, as the library of the large study"
    parser.add_argument("--draws", choices=DRAWS, help=f"{draws} [disjoint; in the folder of a study as the study]")
    add_device(parser)
    parser.add_argument("--jobs", type=int, default=None, help="processes to score runs in [all cores]")
    parser.add_argument(
        "--bounds",
        action=argparse.BooleanOptionalAction,
        help="what a perfect code and pure noise score [in the table]",
    )
    parser.add_argument("--json", action="store_true", help="print every score as JSON")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write every score to a CSV file")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_root(parser)


def main(parser: Parser, arguments: Sequence[str]) -> None:
    add_arguments(parser)
    options = parser.parse_all(arguments)
    asked = options.metrics.split(",") if options.metrics else None
    names = chosen(asked)
    check(options)
    protocol = protocol_of(options)
    rows, sample = score_arrays(options, asked, protocol) if options.codes else score_runs(options, asked, protocol)
    if options.bounds or (options.bounds is None and not options.json):
        rows += bound_rows(options, names, sample, protocol)
    if options.csv:
        write_atomic(options.csv, as_csv(rows).encode())
    print(json.dumps(rows, indent=1) if options.json else summary(rows, names))


def protocol_of(options: argparse.Namespace) -> Protocol:
    """The protocol of the study whose folder is scored, or the default, with what the flags say."""
    base = Protocol() if options.runs is None else read_protocol(options.runs)
    flags = {name: getattr(options, name) for name in ("train", "test", "table", "seed", "draws")}
    return replace(base, **{name: value for name, value in flags.items() if value is not None})


def check(options: argparse.Namespace) -> None:
    """Refuse sizes too small and sources that do not fit together."""
    for flag, low in {"train": 2, "test": 2, "table": 2, "jobs": 1}.items():
        if (value := getattr(options, flag)) is not None and value < low:
            raise UserError(f"--{flag} must be at least {low}. Got {value} instead.")
    if (options.codes is None) != (options.factors is None) or (options.codes is None) == (options.runs is None):
        raise UserError("Give either a folder of runs, or both --codes and --factors. See: unbraid score --help")


def score_runs(
    options: argparse.Namespace, asked: Sequence[str] | None, protocol: Protocol
) -> tuple[list[dict[str, Any]], list[Sample]]:
    """Rows of all trained runs in the folder, and the factors they were scored on."""
    from unbraid.runs.folder import find_runs
    from unbraid.runs.run import load_runs
    from unbraid.scoring.score import load_sources, score

    found = find_runs(options.runs)
    check_device(options.device)
    runs = load_runs(options.runs, device=options.device)
    whole = [run for run in runs if run.divergence is None]
    left = f"{len(runs) - len(whole)} diverged, {len(found) - len(runs)} not trained to the end"
    if not whole:
        raise UserError(f"No run in {options.runs} can be scored: {left}.")
    if len(whole) < len(found):
        print(f"unbraid: left out: {left}.", file=sys.stderr)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RuntimeWarning)
        rows = score(whole, asked, protocol=protocol, jobs=options.jobs, quiet=options.quiet)
    for warning in told:
        print(f"unbraid: {warning.message}", file=sys.stderr)
    kinds = dict.fromkeys((run.spec.data, run.spec.latents) for run in whole)
    sources = load_sources(whole, quiet=options.quiet)
    several = len({latents for _, latents in kinds}) > 1
    samples = [
        Sample(name if len(sources) > 1 else "", latents if several else None, blank(sources[name], latents, protocol))
        for name, latents in kinds
        if sources[name].names
    ]
    return rows, samples


def blank(data: FactorData, latents: int, protocol: Protocol) -> Rows:
    """The rows of a dataset's factors, with codes of zero."""
    if data.gridded:
        return protocol.blank(data.sizes, latents)
    factors = data.factors(protocol.some(len(data))).cpu().numpy()
    return protocol.rows(np.zeros((len(factors), latents)), factors)


class Sample(NamedTuple):
    """Factors, and the shape of the codes, for which a ceiling and a floor are wanted; what sets it apart."""

    data: str
    latents: int | None
    rows: Rows

    def label(self, kind: str) -> str:
        """How the table calls the bound."""
        more = [f"data={self.data}"] * bool(self.data)
        more += [f"latents={self.latents}"] * (self.latents is not None and kind == "noise")
        return " ".join([BOUNDS[kind], *more])


def bound_rows(
    options: argparse.Namespace, names: Sequence[str], samples: Sequence[Sample], protocol: Protocol
) -> list[dict[str, Any]]:
    """A row for the perfect code and one for noise, for each kind of sample."""
    rows: dict[str, dict[str, Any]] = {}
    with progress("ceilings and floors", 2 * len(names) * len(samples)) as report:
        done = 0

        def tell(note: str) -> None:
            nonlocal done
            if not options.quiet:
                report(done, note)
            done += 1

        for sample in samples:
            for kind, scores in bounds(sample.rows, names, protocol.seed, tell, protocol.draws).items():
                flat = {f"{name}.{key}": value for name, values in scores.items() for key, value in values.items()}
                rows[sample.label(kind)] = {"label": sample.label(kind), "bound": kind, **flat}
    return sorted(rows.values(), key=lambda row: row["bound"], reverse=True)


def score_arrays(
    options: argparse.Namespace, asked: Sequence[str] | None, protocol: Protocol
) -> tuple[list[dict[str, Any]], list[Sample]]:
    """One row of scores for arrays from files."""
    codes, factors = read_array(options.codes, "codes"), read_array(options.factors, "factors")
    if len(codes) != len(factors):
        raise UserError(f"Codes and factors must have the same number of rows. Got {len(codes)} in {options.codes} and "
                      f"{len(factors)} in {options.factors}. Row i of both must be the same example.")  # fmt: skip
    as_codes(codes)
    as_factors(factors)
    rows, names = protocol.rows(codes, factors), chosen(asked)
    with progress("scoring", len(names)) as report:
        outcome = rows.score(names, protocol.seed, lambda n: None if options.quiet else report(names.index(n), n))
    values = outcome.values if outcome.values and asked is None else outcome.whole()
    for name, reason in outcome.refused.items():
        print(f"unbraid: left out: {name}: {reason}", file=sys.stderr)
    flat = {f"{name}.{key}": value for name, found in values.items() for key, value in found.items()}
    mark = stamp(identity(name, protocol.seed, rows.sizes(), protocol.draws) for name in names)
    about = {"label": str(options.codes), "rows": len(codes), "protocol": mark, **samples_of(rows.sizes(), protocol)}
    return [{**about, **flat}], [Sample("", None, rows)]


def read_array(path: Path, name: str) -> Array:
    """A 2-d array of numbers from .npy, .npz (its only array, or the one called `name`) or .csv (header optional)."""
    try:
        array = READERS[path.suffix.lower()](path, name)
    except KeyError:
        raise UserError(f"--{name} must be a .npy, .npz or .csv file. Got {path} instead.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as numbers: {error}.") from error
    return array[:, None] if array.ndim == 1 else array


def _read_npz(path: Path, name: str) -> Array:
    with np.load(path, allow_pickle=False) as content:
        keys = list(content)
        if name not in keys and len(keys) != 1:
            raise UserError(f"it must hold one array or one called {name!r}, but holds {', '.join(keys) or 'none'}")
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
    """Tables with each metric's headline, and the sampled codes' where it differs in meaning."""
    columns = {title(name): f"{name}.{TRAITS[name].headline}" for name in names}
    sampled = "unsupervised.gaussian_total_correlation.sampled"
    if any(sampled in row for row in rows):
        columns["(sampled)"] = sampled
    columns = {head: key for head, key in columns.items() if any(key in row for row in rows)}
    scored = [row for row in rows if "bound" not in row]
    told = dict(zip(map(id, scored), labels(scored), strict=True)) if "run" in scored[0] else {}
    first = {"run": [row.get("run", "") for row in rows]} if told else {}
    first |= {"settings" if told else "codes": [told.get(id(row), row["label"]) for row in rows]}
    table = blocks(first, {head: [row.get(key, "-") for row in rows] for head, key in columns.items()})
    return "\n".join([table, *sample_lines(scored)])


def sample_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Which rows metrics learned from and were tested on, one line for each kind of sample."""
    kinds = dict.fromkeys((row["train_rows"], row["test_rows"], row["draws"]) for row in rows)
    how = {"disjoint": "no row in both", "reference": "drawn with replacement, so that a row may be in both"}
    return [
        f"Metrics learn from {train:,} rows and are tested on {test:,} ({how[draws]})." for train, test, draws in kinds
    ]


def title(name: str) -> str:
    """A metric's column: its name, with a v where low is good."""
    return {"unsupervised": "total corr."}.get(name, name) + " (low)" * TRAITS[name].low_is_good


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Every column of every row."""
    fields = list(dict.fromkeys(key for row in rows for key in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
