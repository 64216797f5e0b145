"""The table in docs/report.md, from what benchmarks/bench_report.py measured."""

from __future__ import annotations

from pathlib import Path

from gpu_pages import filled
from metric_pages import ROOT, result, rows

PAGE = ROOT / "docs" / "report.md"


def report_pages() -> dict[Path, str]:
    """The page with its table made anew."""
    return {PAGE: filled(PAGE.read_text(), "report", table())}


def table() -> str:
    """Size and speed of pages with one decoder."""
    bench = result("bench_report")
    body = [
        [
            case["case"],
            f"{case['megabytes']:.2f} MB",
            f"{case['seconds_to_open']:.2f} s",
            f"{case['frames_per_second']:.0f}",
            f"{case['decodings_per_second']:.0f}",
        ]
        for case in bench["cases"]
    ]
    head = f"Pages with one decoder, in headless Chromium {bench['chromium'].split('.')[0]} on two cores of "
    head += f"{bench['machine']['processor']} (`python benchmarks/bench_report.py`):"
    names = ["decoder", "page", "opens in", "frames a second, a slider moved in each", "decodings a second"]
    return head + "\n\n" + rows(names, body)
