"""One page a metric: its docstring, defaults, cost, invariances, and what it gives for planted codes."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unbraid.metrics import METRICS, TRAITS
from unbraid.metrics.known_codes import PLANTED

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

LAW_NAMES = {
    "rows": "the order of rows",
    "codes": "the order of codes",
    "factors": "the order of factors",
    "affine": "positive scaling and shifting of each code",
}


OVERVIEW = """# Metrics

Made from the registry and `benchmarks/bench_planted.py` by `make docs`. What a perfect code, the same code rotated, and
pure noise score for dSprites' factor sizes (3, 6, 40, 32, 32) at 10,000 and 5,000 points: read every score between its
floor and its ceiling. How scores are made, kept and compared is in [scores.md](scores.md); degenerate input in
[edge_cases.md](edge_cases.md); ranking models without labels in [udr.md](metrics/udr.md).

"""
EDGE_CASES = """# Edge cases

Made from the test tables by `make docs`. Metrics that are not named give finite scores in their range; what they do
with the case is on their own page.

"""


def rows(header: list[str], body: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in body)])


def result(name: str) -> dict[str, Any]:
    """A benchmark's stored result."""
    content: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    return content


def markdown(thing: Any) -> str:
    """A docstring with its equations and example as Markdown."""
    text = re.sub(r":math:`([^`]*)`", r"$\1$", inspect.getdoc(thing) or "")
    text = re.sub(r"\.\. math:: (.*?)(?=\n\n|\Z)", lambda m: f"$$\n{m[1]}\n$$", text, flags=re.DOTALL)
    return re.sub(r"\n\n(>>> .*?)(?=\n\n|\Z)", r"\n\n```\n\1\n```", text, flags=re.DOTALL)


def number(value: float | None) -> str:
    """Three places, more for small numbers, a dash for none."""
    return "-" if value is None else f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"


def signature(function: Callable[..., Any]) -> str:
    """How it is called, and its defaults."""
    arrays = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    options = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    call = ", ".join([*arrays, *(["*"] if options else []), *(f"{p.name}={p.default!r}" for p in options)])
    return f"```\nunbraid.metrics.{function.__name__}({call})\n```"


def cost(name: str) -> str:
    """CPU seconds at the study's sizes, ours and the reference's where both were measured."""
    bench = result("bench_metrics")
    seconds = bench["ours"]["seconds"].get(name)
    if seconds is None:
        return f"{bench['others'][name]:.2f} CPU seconds at 10,000 and 5,000 points of 10 codes and dSprites' factors."
    theirs = bench["reference"]["seconds"].get(name)
    beside = f"; scikit-learn's estimators in the reference's protocol take {theirs:.1f}" if theirs else ""
    return f"{seconds:.2f} CPU seconds at 10,000 and 5,000 points of 10 codes and dSprites' factors{beside}."


def invariances(name: str) -> str:
    """What leaves the scores alone, to which tolerance, and what does not."""
    from laws import LAWS

    law, lines = LAWS[name], []
    for key, what in LAW_NAMES.items():
        close = law.tolerances[key]
        if close >= 1:  # no law: scores lie between 0 and 1
            continue
        if key == "affine" and set(law.changes) >= {k for k in law.ranges if TRAITS[name].headline in k}:
            continue
        lines.append(f"- {what}" + (f" (to {close:g} on 120 rows)" if close > 1e-6 else ""))
    text = "Scores do not depend on\n\n" + "\n".join(lines)
    if law.changes:
        changed = rows(["key", "why scaling a code changes it"], [[f"`{k}`", why] for k, why in law.changes.items()])
        text += f"\n\nexcept that\n\n{changed}"
    return text


def planted(name: str) -> str:
    """What the metric gives for codes with known virtues and vices."""
    scores = result("bench_planted")["scores"]
    keys = [key for key in scores["perfect"][name] if ":" not in key or key == TRAITS[name].headline]
    body = []
    for code, plant in PLANTED.items():
        what = (inspect.getdoc(plant) or "").split("\n\n")[0].replace("\n", " ")
        body.append([code, what, *(number(scores[code].get(name, {}).get(key)) for key in keys)])
    return rows(["code", "what it is", *(f"`{key}`" for key in keys)], body)


def metric_page(name: str) -> str:
    """Everything about one metric."""
    function = METRICS[name]
    parts = [
        f"# {name}\n\nMade from the docstring, the law tables and the benchmarks by `make docs`.",
        markdown(function),
        "## Call and defaults",
        signature(function),
        f"Its headline is `{TRAITS[name].headline}`" + (", where low is good." if TRAITS[name].low_is_good else "."),
        f"## Cost\n\n{cost(name)}",
        f"## Invariances\n\n{invariances(name)}",
        "## Planted codes\n\nFactors of dSprites' sizes (3, 6, 40, 32, 32), 10,000 points to learn from, 5,000 to test "
        "on (`python benchmarks/bench_planted.py`):",
        planted(name),
    ]
    return "\n\n".join(parts) + "\n"


def overview() -> str:
    """The list of metrics with ceiling, floor and cost."""
    scores = result("bench_planted")["scores"]
    body = []
    for name, trait in TRAITS.items():
        found = [scores[code].get(name, {}).get(trait.headline) for code in ("perfect", "rotated", "noise")]
        link = f"[{name}](metrics/{name}.md)"
        body.append(
            [link, f"`{trait.headline}`" + " (low is good)" * trait.low_is_good, *map(number, found), trait.estimator]
        )
    return OVERVIEW + rows(["metric", "headline", "perfect", "rotated", "noise", "estimated by"], body) + "\n"


def edge_cases() -> str:
    """What each metric does with degenerate input."""
    from edges import EDGES, REFUSES

    body = []
    for edge, case in EDGES.items():
        refused = REFUSES.get(edge, {})
        who = "all" if len(refused) >= len(METRICS) - 1 else ", ".join(f"`{name}`" for name in refused) or "none"
        if who == "all" and "unsupervised" not in refused:
            who = "all that take factors"
        words = "; ".join(dict.fromkeys(f"“{message}”" for message in refused.values()))
        body.append([case.what, who, words])
    return EDGE_CASES + rows(["the case", "refused by", "with the words"], body) + "\n"


def udr_page() -> str:
    """The one score of several models at once."""
    from unbraid.metrics.udr import udr

    head = "# udr\n\nMade from the docstring by `make docs`."
    return "\n\n".join([head, markdown(udr), "## Call and defaults", signature(udr)]) + "\n"


def metric_pages() -> dict[Path, str]:
    """The generated files and what they should hold."""
    docs = ROOT / "docs"
    pages = {docs / "metrics" / f"{name}.md": metric_page(name) for name in METRICS}
    more = {
        docs / "metrics.md": overview(),
        docs / "edge_cases.md": edge_cases(),
        docs / "metrics" / "udr.md": udr_page(),
    }
    return {**more, **pages}
