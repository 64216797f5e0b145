"""Draw every analysis of the committed results of a study, as in docs/guides/analyses.md.

Run in docs/: python -m figures.study NAME [FOLDER]
NAME is small, dsprites, demystifying or demystifying_lower: the table benchmarks/results/study_NAME.csv. With a FOLDER
of runs, the table is first written from them.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pandas as pd
from generate import ROOT
from matplotlib.figure import Figure
from PIL import Image

from unbraid.analysis import ANALYSES
from unbraid.analysis.demystifying import MANIPULATED
from unbraid.errors import UserError
from unbraid.runs.results import load_results
from unbraid.runtime.files import make_folder, write_atomic

# The folder of the pictures of each study, and its analyses if not all are shown.
STUDIES = {"small": "study", "dsprites": "study_dsprites", "demystifying": "study_demystifying",
           "demystifying_lower": "study_demystifying_lower"}  # fmt: skip
ONLY = {"demystifying": MANIPULATED, "demystifying_lower": ("manipulated", "manipulated_factors")}
WITHOUT = ("accuracy_factor_", "train_accuracy", "min_test_accuracy", ":mean_train")  # columns that no analysis reads
DPI = 100


def results_file(name: str) -> Path:
    """Return the file of a study's results."""
    return ROOT / "benchmarks" / "results" / f"study_{name}.csv"


def write_table(folder: Path, path: Path) -> None:
    """Write the table of a study with five digits, without accuracies of single factors."""
    table = load_results(folder)
    kept = [name for name in table if not any(part in name for part in WITHOUT)]
    ordered = table[kept].dropna(axis=1, how="all").sort_values("index")
    write_atomic(path, ordered.to_csv(index=False, float_format="%.5g").encode())


def small_png(figure: Figure) -> bytes:
    """Return a figure as a small PNG with a palette."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    return small.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=STUDIES)
    parser.add_argument("folder", type=Path, nargs="?", help="runs whose table is written first")
    options = parser.parse_args()
    if options.folder:
        write_table(options.folder, results_file(options.name))
    pictures = ROOT / "docs" / "pictures" / STUDIES[options.name]
    make_folder(pictures)
    table = pd.read_csv(results_file(options.name))
    for name in ONLY.get(options.name, ANALYSES):
        try:
            found = ANALYSES[name].run(table)
        except UserError as error:
            print(f"{name}: not answered: {error}")
            continue
        write_atomic(pictures / f"{name}.png", small_png(found.figure))
        print(f"{name}: {found.text}")


if __name__ == "__main__":
    main()
