"""Write the generated pages and the generated blocks of handwritten ones.

Run in docs/: python -m generate [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from generate import ROOT
from generate.claims import claim_pages
from generate.cluster import cluster_pages
from generate.comparison import comparison_pages
from generate.datasets import dataset_pages
from generate.gpu import gpu_pages
from generate.manipulated import manipulated_pages
from generate.methods import method_pages
from generate.metrics import metric_pages
from generate.pairs import pair_pages
from generate.papers import paper_pages
from generate.promises import promise_pages
from generate.readme import readme_pages
from generate.report import report_pages
from generate.reproduction import reproduction_pages
from generate.scores import score_result_pages
from generate.speed import speed_pages
from generate.vitae import vitae_pages
from generate.which_method import which_method_pages
from generate.zoo import zoo_pages

GENERATORS = (
    readme_pages, gpu_pages, manipulated_pages, pair_pages, vitae_pages, report_pages, speed_pages, method_pages,
    metric_pages, dataset_pages, comparison_pages, paper_pages, score_result_pages, promise_pages,
    reproduction_pages, zoo_pages, claim_pages, which_method_pages, cluster_pages,
)  # fmt: skip


def pages() -> dict[Path, str]:
    """Return every generated file with the text it should have."""
    return {path: text for generator in GENERATORS for path, text in generator().items()}


def main() -> int:
    """Write the pages, or with --check name those that are out of date."""
    outdated = {path: text for path, text in pages().items() if not path.exists() or path.read_text() != text}
    for path, text in outdated.items():
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} is out of date. Run: make docs")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return int("--check" in sys.argv and bool(outdated))


if __name__ == "__main__":
    sys.exit(main())
