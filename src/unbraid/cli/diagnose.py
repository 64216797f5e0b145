"""Predict from a dataset alone whether a VAE will find its factors, and how many latents a linear VAE would use.

The alignment compares the local principal axes of the images with the factors. It is 1 if the axes are the factors, and
0 if the axes are rotated at random. It needs data that cover a full grid of factors. No model is trained.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import Parser, add_quiet, add_root, parse_and_run
from unbraid.cli.values import MAX_EXAMPLES, argument_type, finite_number, parse_words, path, whole_number
from unbraid.runtime.tables import table

if TYPE_CHECKING:
    from unbraid.data.dataset import FactorData

MAX_SHOWN = 10  # maximum number of eigenvalues that are printed


def main(parser: Parser, arguments: Sequence[str]) -> int:
    add = parser.add_argument
    add("data", metavar="DATA", help="name of a dataset, or path of your own data")
    factors = "factors to compare, such as x,y [all factors whose values have an order]"
    add("--factors", type=argument_type(parse_words), metavar="A,B", help=factors)
    add("--places", type=whole_number(2, 100_000), default=256, help="number of random cells of the factor grid [256]")
    reach = "size of a cell, in standard deviations of each factor [0.3]"
    add("--reach", type=finite_number(low=0), default=0.3, help=reach)
    examples = "number of examples from which the linear VAE is computed [1000]"
    add("--examples", type=whole_number(2, MAX_EXAMPLES), default=1000, help=examples)
    beta_s2 = "beta of the linear VAE times the variance of its likelihood [1]"
    add("--beta-s2", type=finite_number(low=0), default=1.0, metavar="NUMBER", help=beta_s2)
    add("--latents", type=whole_number(1, 1000), default=10, help="number of latents of the linear VAE [10]")
    add("--seed", type=whole_number(), default=0, help="random seed for the choice of cells and examples [0]")
    add("--out", type=path, metavar="FOLDER", help="also write the alignment as alignment.csv and alignment.png")
    add("--json", action="store_true", help="print all numbers as JSON")
    add_quiet(parser)
    add_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Print the alignment and the optimum of a linear VAE."""
    from unbraid.analysis.alignment import alignment
    from unbraid.analysis.linear_vae import optimum
    from unbraid.analysis.registry import save_result
    from unbraid.analysis.results_table import Result
    from unbraid.data.loading import load_data

    data = load_data(options.data, quiet=options.quiet)
    found = alignment(data, options.factors, places=options.places, reach=options.reach, seed=options.seed)
    values = covariance_eigenvalues(data, options.examples, options.seed)
    best = optimum(values, options.beta_s2, options.latents)
    if options.out:
        save_result(Result(found.table, found.figure, found.text), options.out, "alignment")
    if options.json:
        axes = {"score": found.score, "error": found.error, "strengths": found.strengths.reset_index().to_dict("list")}
        linear = {"eigenvalues": values[: options.latents].tolist(), "posterior": best.posterior.tolist()}
        print(json.dumps({"data": data.name, "alignment": axes, "linear_vae": {**linear, "active": best.active}}))
        return
    print(found.text)
    print(
        f"\nA linear VAE with {options.latents} latents and beta s^2 = {options.beta_s2:g} would use {best.active} of "
        "them: one for each principal axis whose variance is above beta s^2."
    )
    rows = zip(range(1, MAX_SHOWN + 1), values.tolist(), best.posterior.tolist(), strict=False)
    print(table(["axis", "variance", "posterior variance"], list(rows)))


def covariance_eigenvalues(data: FactorData, examples: int, seed: int) -> Any:
    """Return the eigenvalues of the covariance of random examples, the largest first."""
    import numpy as np

    from unbraid.scoring.selection import draw_examples

    x = data.batch(draw_examples(data, examples, seed)).flatten(1).double().cpu().numpy()
    return np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2 / len(x)
