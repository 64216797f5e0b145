"""Write the documentation site: static pages that need neither server nor network.

Run: python docs/build_site.py [--out site]
"""

from __future__ import annotations

import argparse
import functools
import json
import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pygments.formatters import HtmlFormatter
from site_markdown import Page, relative, render

from unbraid import __version__
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.provenance import commit

ROOT = Path(__file__).parents[1]
DOCS, LOOK = ROOT / "docs", ROOT / "docs" / "site"
BESIDE = {"CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog"}  # pages that lie beside docs/
SECTIONS = {  # pages of docs/ in the order of the navigation; a folder stands for all its pages
    "Start": ["index", "tutorial", "faq", "compare"],
    "Guides": [
        *("runs", "scores", "traversals", "report", "own_data", "networks", "pairs_and_spaces", "appearance"),
        *("studies", "analyses", "reproduce", "gpu", "export"),
    ],
    "Methods": ["methods", "methods/"],
    "Metrics": ["metrics", "edge_cases", "metrics/"],
    "Data": ["data", "data_files", "drawing", "bodies", "data/"],
    "Design": ["architecture", "contributing", "changelog"],
}
OTHERS = "Guides"  # where a page goes that is not named above


@dataclass(frozen=True)
class Source:
    """A Markdown file and the name of its page, without an ending."""

    name: str
    path: Path

    def link(self, target: str, files: dict[str, Path]) -> str:
        """Where a relative address leads in the site; what is no page is noted in `files`, to be copied."""
        address, mark, anchor = target.partition("#")
        place = (self.path.parent / address).resolve()
        if place.suffix == ".md":
            known = {one.path.resolve(): one.name for one in sources()}
            name = "index" if place == ROOT / "README.md" else known[place]
            return relative(f"{name}.html", self.name) + mark + anchor
        inside = place.is_relative_to(DOCS)
        name = place.relative_to(DOCS).as_posix() if inside else f"files/{place.relative_to(ROOT).as_posix()}"
        files[name] = place
        return relative(name, self.name)


@functools.cache
def sources() -> tuple[Source, ...]:
    """All pages."""
    inside = [Source(path.relative_to(DOCS).with_suffix("").as_posix(), path) for path in sorted(DOCS.rglob("*.md"))]
    return (*inside, *(Source(name, ROOT / file) for file, name in BESIDE.items()))


def ordered(names: list[str]) -> dict[str, list[str]]:
    """Every page under its section."""
    left, found = dict.fromkeys(names), dict[str, list[str]]()
    for section, entries in SECTIONS.items():
        found[section] = []
        for entry in entries:
            folder = entry.endswith("/")
            chosen = registered(entry, names) if folder else [entry] if entry in left else []
            found[section] += chosen
            for name in chosen:
                del left[name]
    found[OTHERS] += left
    return found


def registered(folder: str, names: list[str]) -> list[str]:
    """The pages of a folder, in the order of the registry they were made from."""
    from unbraid.data import DATASETS
    from unbraid.methods import METHODS
    from unbraid.metrics import METRICS

    order = [folder + name for registry in (METHODS, METRICS, DATASETS) for name in registry]
    inside = [name for name in names if name.startswith(folder)]
    return sorted(inside, key=lambda name: order.index(name) if name in order else len(order))


def navigation(order: dict[str, list[str]], pages: dict[str, Page], here: str) -> list[dict[str, Any]]:
    """Sections with their links, as seen from one page."""
    return [
        {
            "title": section,
            "here": here in names,
            "links": [
                {"title": pages[name].title, "url": relative(f"{name}.html", here), "here": name == here}
                for name in names
            ],
        }
        for section, names in order.items()
    ]


def beside(order: dict[str, list[str]], pages: dict[str, Page], here: str) -> list[dict[str, str] | None]:
    """The pages before and after one."""
    line = [name for names in order.values() for name in names]
    i = line.index(here)
    return [
        {"title": pages[line[j]].title, "url": relative(f"{line[j]}.html", here)} if 0 <= j < len(line) else None
        for j in (i - 1, i + 1)
    ]


def index(order: dict[str, list[str]], pages: dict[str, Page]) -> str:
    """What the search looks through: a page, a heading and the text below it a row, as a script that sets one name."""
    rows = [
        [f"{name}.html#{anchor}", pages[name].title, title, " ".join(text.split())]
        for names in order.values()
        for name in names
        for anchor, title, text in pages[name].texts
    ]
    return "window.unbraidIndex = " + json.dumps(rows, ensure_ascii=False, separators=(",", ":")) + ";\n"


def style() -> str:
    """Our style sheet with the colours of code, by day and by night."""
    colours = {name: HtmlFormatter(style=name).get_style_defs(".code") for name in ("default", "github-dark")}
    dark = f"@media (prefers-color-scheme: dark) {{\n{colours['github-dark']}\n}}"
    return "\n".join([colours["default"], dark, (LOOK / "style.css").read_text()])


def build(out: Path) -> list[Path]:
    """Write every page, the style, the search, and the pictures and files that pages refer to."""
    files: dict[str, Path] = {}
    pages = {one.name: render(one.path.read_text(), functools.partial(one.link, files=files)) for one in sources()}
    order = ordered(list(pages))
    look = Environment(loader=FileSystemLoader(LOOK), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template, stamp = look.get_template("template.html"), (commit() or "unknown")[:12]
    written = []
    for name, page in pages.items():
        previous, following = beside(order, pages, name)
        top = "../" * name.count("/")
        text = template.render(
            page=page, name=name, top=top, sections=navigation(order, pages, name), previous=previous,
            following=following, contents=[h for h in page.headings if h[0] == 2], version=__version__, commit=stamp,
        )  # fmt: skip
        written.append(place(out / f"{name}.html", text))
    written += [place(out / "style.css", style()), place(out / "search-index.js", index(order, pages))]
    written.append(place(out / "search.js", (LOOK / "search.js").read_text()))
    for name, source in files.items():
        written.append(place(out / name, source.read_bytes()))
    return written


def place(path: Path, content: str | bytes) -> Path:
    """Write a file whole, with its folder."""
    make_folder(path.parent)
    write_atomic(path, content.encode() if isinstance(content, str) else content)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder of the site [site]")
    options = parser.parse_args()
    written = build(options.out)
    pages = sum(path.suffix == ".html" for path in written)
    print(f"{pages} pages in {options.out}. Open {posixpath.join(options.out.as_posix(), 'index.html')}")


if __name__ == "__main__":
    main()
