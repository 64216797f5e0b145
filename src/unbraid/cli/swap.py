"""Draw the exchange of latents between examples, to show what each latent, subspace or group of latents encodes.

In each panel, one group of latents comes from the example at the top of the column, and all other latents come from the
example at the left of the row. The groups are the subspaces of PMP, the appearance and the perspective of VITAE, and
single latents of other methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbraid.cli.parser import Parser, add_trust_and_root, parse_and_run
from unbraid.cli.values import argument_type, parse_integers, path, whole_number


def parse_groups(text: str) -> list[list[int]]:
    """Parse a comma-separated list of latents or ranges. Latents that are joined by a plus sign are exchanged together.

    >>> parse_groups("0,3"), parse_groups("0+1,4-5")
    ([[0], [3]], [[0, 1], [4], [5]])
    """
    groups: list[list[int]] = []
    for part in text.split(","):
        numbers = parse_integers(part.replace("+", ","))
        groups += [numbers] if "+" in part else [[i] for i in numbers]
    return groups


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("runs", type=path, metavar="RUNS", help="a folder of runs, or one run")
    groups = "latents or subspaces to exchange, such as 0,3; in 0+1,2 the first two are exchanged together [all groups]"
    parser.add_argument("--latents", type=argument_type(parse_groups), metavar="A,B", help=groups)
    examples = "number of rows and columns of each panel [5]"
    parser.add_argument("--examples", type=whole_number(2, 100), default=5, help=examples)
    seed = "random seed with which examples are drawn [0]"
    parser.add_argument("--seed", type=whole_number(), default=0, help=seed)
    parser.add_argument("--data", help="dataset of the examples, such as mnist?part=test [that of the runs]")
    parser.add_argument("--out", type=path, metavar="FOLDER", help="folder for the pictures [the folder of each run]")
    add_trust_and_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Draw one picture per run and print the paths."""
    from unbraid.cli.traverse import runs_with_decoder
    from unbraid.pictures.subspaces import draw_swaps
    from unbraid.runs.run import load_runs
    from unbraid.scoring.score import load_datasets

    runs = runs_with_decoder(load_runs(options.runs, trust=options.trust), options.runs)
    data = load_datasets(runs, options.data)
    settings = {"examples": options.examples, "seed": options.seed, "groups": options.latents}
    for one in runs:
        out = None if options.out is None else options.out / one.id
        print(f"{one.label}: {draw_swaps(one, data[one.spec.data], out=out, **settings)}")
