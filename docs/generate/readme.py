"""The generated parts of README.md: what the package contains, what it reproduces, and how fast it is."""

from __future__ import annotations

from pathlib import Path

from generate import ROOT
from generate.markdown import replace_block, table
from generate.reproduction import count_text
from generate.speed import short_speed_table
from unbraid.analysis import ANALYSES
from unbraid.data import BODIES, BUILT_IN, FILES
from unbraid.methods import METHODS
from unbraid.metrics import METRICS
from unbraid.nets.registry import NETS
from unbraid.spaces import SPACES
from unbraid.studies import STUDIES
from unbraid.zoo.catalogue import list_models

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
        "[trained models](docs/guides/sharing_models.md) in the package": [model.name for model in list_models()],
    }
    body = [[str(len(names)), kind, ", ".join(f"`{name}`" for name in names)] for kind, names in registries.items()]
    return table(["", "kind", "names"], body)


def readme_pages() -> dict[Path, str]:
    """Return the README with its current tables."""
    text = replace_block(PAGE.read_text(), "contents", contents_table())
    text = replace_block(text, "reproduction", f"{count_text()} [All cells](docs/guides/reproduction_results.md).")
    return {PAGE: replace_block(text, "speed", short_speed_table())}
