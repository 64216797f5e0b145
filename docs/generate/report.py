"""The tables in docs/guides/report.md: operators of decoders, and speeds measured by benchmarks/bench_report.py."""

from __future__ import annotations

from pathlib import Path

from generate import ROOT
from generate.markdown import replace_block, result, table
from unbraid.reporting.operators import SUPPORTED

PAGE = ROOT / "docs" / "guides" / "report.md"
HEADER = [
    "decoder and size of its images",
    "size of the page",
    "time to open",
    "frames per second while a slider moves",
    "decodings per second",
]


def report_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    text = replace_block(PAGE.read_text(), "operators", operators())
    return {PAGE: replace_block(text, "report", speeds())}


def operators() -> str:
    """Return the operators that a page can run, by kind."""
    body = [[kind, ", ".join(f"`{name}`" for name in sorted(names))] for kind, names in SUPPORTED.items()]
    return table(["kind", "operators of ATen"], body)


def speeds() -> str:
    """Return the size and speed of pages with one decoder."""
    bench = result("bench_report")
    body = [
        [case["case"], f"{case['megabytes']:.2f} MB", f"{case['seconds_to_open']:.2f} s",
         f"{case['frames_per_second']:.0f}", f"{case['decodings_per_second']:.0f}"]
        for case in bench["cases"]
    ]  # fmt: skip
    head = (
        "The next table has the size and speed of pages with one decoder, in headless Chromium "
        f"{bench['chromium'].split('.')[0]} on two cores of an {bench['machine']['processor']} processor "
        "(`python benchmarks/bench_report.py`)."
    )
    return head + "\n\n" + table(HEADER, body)
