"""Write the README's tables and the reference pages from the registries and the benchmark results.

Run: python docs/tables.py [--check]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from compare_pages import compare_pages
from data_pages import data_pages
from gpu_pages import gpu_pages, gpu_speed
from manipulated_pages import manipulated_pages
from method_pages import method_pages
from metric_pages import ROOT, metric_pages, result, rows
from pair_pages import pair_pages
from report_pages import report_pages
from vitae_pages import vitae_pages

from unbraid.cli.list_registries import first_line, registries

BEGIN, END = "<!-- tables: begin (make docs) -->", "<!-- tables: end -->"


def reference(thing: Any) -> str:
    """The first paper a docstring refers to, up to its arXiv number or venue."""
    text = " ".join((thing.__doc__ or "").split())
    found = re.search(r"Reference: (.*?(?:arXiv:\d{4}\.\d{4,5}|ICLR))", text)
    return found[1] if found else ""


def registry_tables() -> list[str]:
    """One table for each of methods, metrics and data."""
    tables = []
    for kind, registry in registries(["methods", "metrics", "data"]).items():
        cited = kind != "data"
        body = [[f"`{n}`", first_line(t), *([reference(t)] if cited else [])] for n, t in registry.items()]
        tables.append(rows([kind, "what it is", *(["reference"] if cited else [])], body))
    return tables


def speed_table() -> str:
    """What the benchmarks measured, with the machine."""
    train, render = result("bench_train"), result("bench_dsprites")
    machine = train["machine"]
    body = []
    for case in train["steps"]:
        runs = "one run" if case["runs"] == 1 else f"{case['runs']} runs together"
        what = f"beta-VAE step, 64 images of 64x64x1, `{case['net']}`, {case['precision']}, {runs}"
        body.append([what, f"{case['ms']['unbraid']:.1f} ms", f"{case['ms']['pythae']:.1f} ms", f"{case['ratio']:.2f}"])
    seconds = render["render"]["cpu"]["median_seconds"]
    body.append(["all 737,280 dSprites images rendered, one core", f"{seconds:.2f} s", "", ""])
    body.append(metrics_speed())
    body.append(gpu_speed())
    head = (
        f"Measured on {machine['processor']}, {machine['cores']} cores, by the scripts in `benchmarks/` (`make bench`):"
    )
    return head + "\n\n" + rows(["what", "unbraid", "pythae / scikit-learn / PyTorch", "ratio"], body)


def metrics_speed() -> list[str]:
    """The study's metrics against scikit-learn's estimators."""
    bench = result("bench_metrics")
    what = "the study's nine metric configurations, one representation, 10,000 and 5,000 points, CPU time of one core"
    return [what, f"{bench['ours']['total']:.1f} s", f"{bench['reference']['total']:.0f} s", f"{bench['ratio']:.4f}"]


def pages() -> dict[Path, str]:
    """The generated files and what they should hold."""
    readme = ROOT / "README.md"
    return {
        readme: updated(readme.read_text()),
        **gpu_pages(),
        **manipulated_pages(),
        **pair_pages(),
        **vitae_pages(),
        **report_pages(),
        **method_pages(),
        **metric_pages(),
        **data_pages(),
        **compare_pages(),
    }


def updated(text: str) -> str:
    """The README with its tables made anew."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n" + "\n\n".join([*registry_tables(), speed_table()]) + f"\n{END}{after}"


def main() -> int:
    if "--check" in sys.argv:
        stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not current. Write it anew: python docs/tables.py")
        return int(bool(stale))
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
