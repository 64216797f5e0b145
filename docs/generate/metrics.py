"""One page per metric: its docstring (by Sphinx), cost, invariances, and its scores of known codes."""

from __future__ import annotations

import inspect
from pathlib import Path

from generate import ROOT
from generate.markdown import autodoc, contents, number, result, table
from unbraid.metrics import METRICS, TRAITS
from unbraid.metrics.known_codes import KNOWN_CODES

FOLDER = ROOT / "docs" / "metrics"
LAW_NAMES = {
    "rows": "the order of rows",
    "codes": "the order of latents",
    "factors": "the order of factors",
    "affine": "positive scaling and shifting of each latent",
}
OVERVIEW = """# Metrics

This page lists all metrics. The page of a metric has its definition, range, cost, invariances and failure modes. See
also:

- [Scores](../guides/scores.md): how scores are computed, stored and compared
- [Edge cases](edge_cases.md): what happens with degenerate input
- [UDR](udr.md): how to rank models without labels

The table has one row per metric. *Headline* is the value that tables show if only one is shown. The next columns are
the headline scores of three known codes: a perfect code (one latent per factor), the same code after an orthogonal
transformation that mixes all latents (*rotated*), and pure noise. Compare every score with these three. The factors
have the sizes of dSprites (3, 6, 40, 32 and 32 values), and every metric got 10,000 training examples and 5,000
different test examples. *Estimator* is what the metric fits or counts. This text is stored with every score. In it,
"one code" means one latent, and "10 strengths by 5-fold cross-validation" means that the regularisation strength is
chosen from 10 values by cross-validation. `make docs` generates this page from the registry and
`benchmarks/bench_known_codes.py`.

"""
EDGE_CASES = """# Edge cases

This page lists which metrics raise an error for degenerate input, and with which message. All other metrics return
finite scores in their range. `make docs` generates this page from the tables
of the tests.

"""
SIZES = "10,000 training and 5,000 test examples with 10 latents and the factors of dSprites"


def cost(name: str) -> str:
    """Return the CPU seconds at the study's sizes, and those of the reference where it was measured."""
    bench = result("bench_metrics")
    seconds = bench["ours"]["seconds"].get(name, bench["others"].get(name))
    if seconds is None:
        return "Not measured yet. Run `python benchmarks/bench_metrics.py`, then `make docs`."
    reference = bench["reference"]["seconds"].get(name)
    beside = (
        f" With scikit-learn's estimators, which disentanglement_lib uses, it takes {reference:.1f} CPU seconds."
        if reference
        else ""
    )
    return f"It takes {seconds:.2f} CPU seconds for {SIZES}.{beside}"


def invariances(name: str) -> str:
    """Return what leaves the scores unchanged, to which tolerance, and the exceptions."""
    from laws import LAWS

    law, lines = LAWS[name], []
    for key, what in LAW_NAMES.items():
        tolerance = law.tolerances[key]
        if tolerance >= 1:  # scores lie between 0 and 1, so this asserts nothing
            continue
        if key == "affine" and set(law.changes) >= {k for k in law.ranges if TRAITS[name].headline in k}:
            continue
        lines.append(
            f"- {what}"
            + (f", apart from differences of up to {tolerance:g} (tested on 120 rows)" if tolerance > 1e-6 else "")
        )
    text = "Scores do not depend on:\n\n" + "\n".join(lines)
    if law.changes:
        exceptions = [[f"`{key}`", reason] for key, reason in law.changes.items()]
        scaled = any(line.startswith("- positive scaling") for line in lines)
        start = "The following scores are exceptions, which do" if scaled else "The following scores"
        text += f"\n\n{start} depend on the scale of each latent:\n\n" + table(["score", "why"], exceptions)
    return text


def known_codes(name: str) -> str:
    """Return the scores of codes with known strengths and weaknesses."""
    scores = result("bench_known_codes")["scores"]
    if name not in scores["perfect"]:
        return "Not measured yet. Run `python benchmarks/bench_known_codes.py`, then `make docs`."
    keys = [key for key in scores["perfect"][name] if ":" not in key or key == TRAITS[name].headline]
    body = []
    for code, make in KNOWN_CODES.items():
        what = (inspect.getdoc(make) or "").split("\n\n")[0].replace("\n", " ").removeprefix("Return ")
        body.append([code, what[:1].upper() + what[1:], *(number(scores[code].get(name, {}).get(key)) for key in keys)])
    return table(["code", "description", *(f"`{key}`" for key in keys)], body)


def metric_page(name: str) -> str:
    """Return the page of one metric."""
    low = ", for which low values are good" if TRAITS[name].low_is_good else ""
    parts = [
        f"# {name}",
        autodoc("autofunction", f"unbraid.metrics.{name}"),
        f"The headline score, which tables show if only one value is shown, is `{TRAITS[name].headline}`{low}.",
        f"## Cost\n\n{cost(name)}",
        f"## Invariances\n\n{invariances(name)}",
        "## Scores of known codes\n\nThe table has the scores of codes with known strengths and weaknesses. The "
        "factors have the sizes of dSprites (3, 6, 40, 32 and 32 values), with 10,000 training examples and 5,000 "
        "different test examples (`python benchmarks/bench_known_codes.py`).",
        known_codes(name),
    ]
    return "\n\n".join(parts) + "\n"


def overview() -> str:
    """Return the table of metrics with their headline scores of known codes and their estimators."""
    scores, body = result("bench_known_codes")["scores"], []
    for name, trait in TRAITS.items():
        found = [scores[code].get(name, {}).get(trait.headline) for code in ("perfect", "rotated", "noise")]
        headline = f"`{trait.headline}`" + " (low is good)" * trait.low_is_good
        body.append([f"[{name}]({name}.md)", headline, *map(number, found), trait.estimator])
    listed = table(["metric", "headline", "perfect", "rotated", "noise", "estimator"], body)
    return f"{OVERVIEW}{listed}\n\n{contents([*METRICS, 'udr', 'edge_cases'])}\n"


def edge_cases() -> str:
    """Return the page of degenerate input."""
    from support.edges import EDGES, EXPECTED_ERRORS

    with_factors = {name for name, metric in METRICS.items() if "factors" in inspect.signature(metric).parameters}
    body = []
    for edge, case in EDGES.items():
        rejected = EXPECTED_ERRORS.get(edge, {})
        who = ", ".join(f"`{name}`" for name in rejected) or "none"
        if set(rejected) >= with_factors:
            who = "all" if set(rejected) == set(METRICS) else "all that take factors"
        body.append([case.what, who, "; ".join(dict.fromkeys(f"“{message}”" for message in rejected.values()))])
    return EDGE_CASES + table(["case", "raises an error in", "message"], body) + "\n"


def metric_pages() -> dict[Path, str]:
    """Return the generated files with their texts."""
    udr = f"# udr\n\n{autodoc('autofunction', 'unbraid.metrics.udr')}\n"
    pages = {FOLDER / f"{name}.md": metric_page(name) for name in METRICS}
    return {FOLDER / "index.md": overview(), FOLDER / "edge_cases.md": edge_cases(), FOLDER / "udr.md": udr, **pages}
