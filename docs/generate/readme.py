"""The two tables of README.md: what the package contains, and how fast it is."""

from __future__ import annotations

from pathlib import Path

from generate import ROOT
from generate.gpu import gpu_speed
from generate.markdown import replace_block, result, table
from unbraid.analysis import ANALYSES
from unbraid.data import BODIES, BUILT_IN, FILES
from unbraid.methods import METHODS
from unbraid.metrics import METRICS
from unbraid.nets.registry import NETS
from unbraid.spaces import SPACES
from unbraid.studies import STUDIES

PAGE = ROOT / "README.md"


def contents_table() -> str:
    """Return the number and the names of everything in the registries."""
    registries = {
        "[methods](docs/methods/index.md)": METHODS,
        "[metrics](docs/metrics/index.md)": [*METRICS, "udr"],
        "[datasets](docs/data/index.md) that need no file": [*BUILT_IN, *BODIES],
        "[datasets](docs/data/index.md) read from published files": FILES,
        "[networks](docs/guides/networks.md)": NETS,
        "[curved latent spaces](docs/guides/pairs_and_spaces.md)": SPACES,
        "[studies](docs/guides/studies.md)": STUDIES,
        "[analyses](docs/guides/analyses.md)": ANALYSES,
    }
    body = [[str(len(names)), kind, ", ".join(f"`{name}`" for name in names)] for kind, names in registries.items()]
    return table(["", "kind", "names"], body)


def speed_table() -> str:
    """Return what the benchmarks measured, with the machine."""
    train, render, metrics = result("bench_train"), result("bench_dsprites"), result("bench_metrics")
    body = []
    for case in train["steps"]:
        if case["net"] == "locatello" and case["precision"] == "bf16":
            runs = "one run" if case["runs"] == 1 else f"{case['runs']} runs together"
            what = f"beta-VAE step on the CPU, batch 64, 64x64 pixels, {runs}"
            ours, theirs = case["ms"]["unbraid"], case["ms"]["pythae"]
            body.append([what, f"{ours:.1f} ms", f"{theirs:.1f} ms (pythae)", f"{theirs / ours:.1f}"])
    ours, theirs = metrics["ours"]["total"], metrics["reference"]["total"]
    what = "the nine metrics of the large study for one representation, one core"
    body.append([what, f"{ours:.1f} s", f"{theirs:.0f} s (scikit-learn)", f"{theirs / ours:.0f}"])
    body.append(gpu_speed())
    body.append(
        ["all 737,280 images of dSprites, one core", f"{render['render']['cpu']['median_seconds']:.2f} s", "", ""]
    )
    machine = train["machine"]
    head = f"CPU rows: {machine['processor']}, {machine['cores']} cores. `make bench` measures again."
    return table(["what", "unbraid", "reference", "times as fast"], body) + f"\n\n{head}"


def readme_pages() -> dict[Path, str]:
    """Return the README with its current tables."""
    text = replace_block(PAGE.read_text(), "contents", contents_table())
    return {PAGE: replace_block(text, "speed", speed_table())}
