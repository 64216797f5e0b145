"""One page a dataset: its docstring, factors' picture, files, licence and citation."""

from __future__ import annotations

from pathlib import Path

from metric_pages import ROOT, markdown, rows

from unbraid.data import BODIES, BUILT_IN, DATASETS
from unbraid.data.files.catalogue import SOURCES, Source

OVERVIEW = """# Data

Made from the registry and the catalogue by `make docs`. Everything in the first table is made on the spot, without any
file; the second needs the extra `bodies`; the third is read from the files their authors publish, which
`unbraid data get NAME` fetches, or says how to get ([data_files.md](data_files.md)). Your own images and arrays are in
[own_data.md](own_data.md), body meshes in [bodies.md](bodies.md), how examples are drawn in [drawing.md](drawing.md).

"""


def overview() -> str:
    """Three tables."""
    parts = []
    for title, names in (("Built in", BUILT_IN), ("With the extra `bodies`", BODIES), ("From files", None)):
        chosen = [n for n in DATASETS if n not in BUILT_IN and n not in BODIES] if names is None else list(names)
        body = [[f"[{n}](data/{n}.md)", SOURCES[n].what, SOURCES[n].licence] for n in chosen]
        parts.append(f"## {title}\n\n" + rows(["name", "what it is", "licence"], body))
    return OVERVIEW + "\n\n".join(parts) + "\n"


def files(source: Source) -> str:
    """What to download, in each form that will do."""
    lines = []
    for i, alternative in enumerate(source.alternatives):
        lines.append(("Either" if i == 0 else "or") + " these:" if len(source.alternatives) > 1 else "These:")
        shown = alternative[:6]
        body = []
        for file in shown:
            size = "-" if file.size is None else f"{file.size:,}"
            body.append(
                [f"`{file.name}`", size, "published" if file.sha256 else "kept at first use", "<br>".join(file.urls)]
            )
        lines.append(rows(["file", "bytes", "sha256", "from"], body))
        if len(alternative) > len(shown):
            lines.append(f"and {len(alternative) - len(shown)} more of the kind.")
    return "\n\n".join(lines)


def data_page(name: str) -> str:
    """Everything about one dataset."""
    source, picture = SOURCES[name], ROOT / "docs" / "pictures" / f"{name}.png"
    parts = [f"# {name}\n\nMade from the docstring and the catalogue by `make docs`.", markdown(DATASETS[name])]
    if picture.exists():
        parts.append(f"![every factor of {name} varied alone](../pictures/{name}.png)")
        parts.append(f"One row a factor, the others in the middle: `unbraid data show {name}`.")
    elif not source.built_in:
        parts.append(f"With the files in place, `unbraid data show {name}` draws every factor.")
    if source.alternatives:
        parts.append("## Files\n\n" + files(source))
    if source.by_hand:
        parts.append(source.by_hand)
    parts.append(f"## Licence and citation\n\n{source.licence}. {source.citation or 'Cite unbraid.'}")
    return "\n\n".join(parts) + "\n"


def data_pages() -> dict[Path, str]:
    """The generated files and what they should hold."""
    docs = ROOT / "docs"
    return {docs / "data.md": overview(), **{docs / "data" / f"{name}.md": data_page(name) for name in DATASETS}}
