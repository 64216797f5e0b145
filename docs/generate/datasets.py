"""One page per dataset: its docstring (by Sphinx), picture, files, licence and citation."""

from __future__ import annotations

from pathlib import Path

from generate import ROOT
from generate.markdown import autodoc, contents, table
from unbraid.data import BODIES, BUILT_IN, DATASETS, FILES
from unbraid.data.files.catalogue import SOURCES, Source

FOLDER = ROOT / "docs" / "data"
OVERVIEW = """# Data

This page lists all datasets, in three groups:

- *Built in*: they are generated when they are loaded, and need no file.
- *With optional packages*: they are generated too, but need `pip install "unbraid[bodies]"`
  ([bodies](../guides/bodies.md)).
- *From files*: they are read from the files that their authors publish. `unbraid data get NAME` downloads the files, or
  says how to get them ([files of datasets](../guides/data_files.md)).

See also [your own data](../guides/own_data.md) and [how examples are drawn](../guides/drawing.md). Sizes are height x
width x channels. `make docs` generates this page from the registry and the catalogue.

"""
FILES_NOTE = (
    "The column *sha256* says which checksum a file is compared with: a published one, or the one that is recorded "
    "when the file is first used. A dash means that no size is published."
)


def overview() -> str:
    """Return the three tables of datasets."""
    parts = []
    for title, names in {"Built in": BUILT_IN, "With optional packages": BODIES, "From files": FILES}.items():
        body = [[f"[{name}]({name}.md)", SOURCES[name].description, SOURCES[name].licence] for name in names]
        parts.append(f"## {title}\n\n" + table(["name", "contents", "licence"], body))
    return OVERVIEW + "\n\n".join([*parts, contents(DATASETS)]) + "\n"


def files(source: Source) -> str:
    """Return the files to download, with one table for each accepted alternative."""
    lines = []
    for i, alternative in enumerate(source.alternatives):
        if len(source.alternatives) > 1:
            lines.append("Either these files:" if i == 0 else "Or these files:")
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
        parts.append(
            "Each row varies one factor, with the others at their middle value. "
            f"`unbraid data show {name}` draws this picture."
        )
    elif not source.built_in:
        parts.append(f"After you have the files, `unbraid data show {name}` draws a picture of its factors.")
    if source.alternatives:
        parts.append(f"## Files\n\n{FILES_NOTE}\n\n{files(source)}")
    if source.manual_steps:
        parts.append(source.manual_steps)
    parts.append(f"## Licence and citation\n\nLicence: {source.licence}.\n\nCitation: {source.citation or 'unbraid.'}")
    return "\n\n".join(parts) + "\n"


def dataset_pages() -> dict[Path, str]:
    """Return the generated files with their texts."""
    return {FOLDER / "index.md": overview(), **{FOLDER / f"{name}.md": dataset_page(name) for name in DATASETS}}
