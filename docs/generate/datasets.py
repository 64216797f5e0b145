"""One page per dataset: its docstring (by Sphinx), picture, files, licence and citation."""

from __future__ import annotations

from pathlib import Path

from generate import ROOT
from generate.markdown import autodoc, contents, table
from unbraid.data import BODIES, BUILT_IN, DATASETS, FILES
from unbraid.data.files.catalogue import SOURCES, Source

FOLDER = ROOT / "docs" / "data"
OVERVIEW = """# Data

After reading this page you know which datasets there are and which of them need files. It is generated from the
registry and the catalogue by `make docs`.

Datasets in the first table are generated when they are loaded and need no file. Those in the second need the extra
`bodies`. Those in the third are read from the files that their authors publish: `unbraid data get NAME` downloads
them, or says how to get them ([files of datasets](../guides/data_files.md)). See also [your own
data](../guides/own_data.md), [bodies](../guides/bodies.md) and [how examples are drawn](../guides/drawing.md).

"""


def overview() -> str:
    """Return the three tables of datasets."""
    parts = []
    for title, names in {"Built in": BUILT_IN, "With the extra `bodies`": BODIES, "From files": FILES}.items():
        body = [[f"[{name}]({name}.md)", SOURCES[name].description, SOURCES[name].licence] for name in names]
        parts.append(f"## {title}\n\n" + table(["name", "contents", "licence"], body))
    return OVERVIEW + "\n\n".join([*parts, contents(DATASETS)]) + "\n"


def files(source: Source) -> str:
    """Return what to download, in each of the forms that are accepted."""
    lines = []
    for i, alternative in enumerate(source.alternatives):
        if len(source.alternatives) > 1:
            lines.append("Either:" if i == 0 else "or:")
        body = [
            [f"`{file.name}`", "-" if file.size is None else f"{file.size:,}",
             "published" if file.sha256 else "recorded at first use", "<br>".join(file.urls)]
            for file in alternative[:6]
        ]  # fmt: skip
        lines.append(table(["file", "bytes", "sha256", "address"], body))
        if len(alternative) > 6:
            lines.append(f"and {len(alternative) - 6} more files of the same kind.")
    return "\n\n".join(lines)


def dataset_page(name: str) -> str:
    """Return the page of one dataset."""
    source, function = SOURCES[name], DATASETS[name]
    parts = [f"# {name}", autodoc("autofunction", f"{function.__module__}.{function.__name__}")]
    if (ROOT / "docs" / "pictures" / f"{name}.png").exists():
        parts.append(f"![The factors of {name}](../pictures/{name}.png)")
        parts.append("Each row varies one factor, with the others at their middle value.")
        parts.append(f"`unbraid data show {name}` draws this picture.")
    elif not source.built_in:
        parts.append(f"If the files are in place, `unbraid data show {name}` draws every factor.")
    if source.alternatives:
        parts.append("## Files\n\n" + files(source))
    if source.manual_steps:
        parts.append(source.manual_steps)
    parts.append(f"## Licence and citation\n\n{source.licence}. {source.citation or 'Cite unbraid.'}")
    return "\n\n".join(parts) + "\n"


def dataset_pages() -> dict[Path, str]:
    """Return the generated files with their texts."""
    return {FOLDER / "index.md": overview(), **{FOLDER / f"{name}.md": dataset_page(name) for name in DATASETS}}
