"""The built documentation: complete, reachable, and independent of the network."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support.sites import built_site

pytestmark = pytest.mark.site
DOCS = Path(__file__).parents[2] / "docs"
LOADED = {  # tags and attributes by which a page loads something
    ("img", "src"),
    ("script", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
}
LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch"}
PUBLIC = (
    "unbraid",
    *(f"unbraid.{name}" for name in ("analysis", "data", "methods", "metrics", "nets", "spaces", "zoo")),
)


class Page(HTMLParser):
    """The links, loaded addresses, anchors and tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.tags: Counter[str] = Counter()
        self.unlabelled: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags[tag] += 1
        self.ids |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and LOADED_LINKS & set(given.get("rel", "").split()):
            self.loaded.append(given["href"])
        self.loaded += [value for name, value in given.items() if (tag, name) in LOADED]
        if tag == "img" and not given.get("alt"):
            self.unlabelled.append(given.get("src", ""))


@pytest.fixture(scope="module")
def site() -> Path:
    return built_site()


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}


def written(site: Path, pages: dict[Path, Page]) -> dict[Path, Page]:
    """Return the pages that have a source in docs/, without the index, search and source code pages."""
    return {path: page for path, page in pages.items() if (DOCS / path.relative_to(site)).with_suffix(".md").exists()}


def test_every_source_has_its_page(site: Path, pages: dict[Path, Page]) -> None:
    sources = {path.relative_to(DOCS) for path in DOCS.rglob("*.md") if "_build" not in path.parts}
    assert sources == {path.relative_to(site).with_suffix(".md") for path in written(site, pages)}


@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_executed_and_show_tables_and_pictures(path: Path, site: Path, pages: dict[Path, Page]) -> None:
    page = site / "notebooks" / f"{path.stem}.html"
    assert page.read_text().count('class="notebook-output"') >= 2
    assert pages[page].tags["h1"] == 1
    assert pages[page].tags["table"] >= 1
    assert not pages[page].unlabelled


def test_pages_have_one_title_and_labelled_pictures(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in written(site, pages).items():
        assert page.tags["h1"] == 1, path
        assert not page.unlabelled, path


def test_links_lead_to_existing_places(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme in ("http", "https", "data", "mailto"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), f"{path.name}: {address}"
            if parts.fragment and target in pages and "_modules" not in path.parts:  # viewcode's anchors may be wrong
                assert unquote(parts.fragment) in pages[target].ids, f"{path.name}: {address}"


def test_every_page_is_in_the_navigation(site: Path, pages: dict[Path, Page]) -> None:
    start = site / "index.html"
    targets = {(site / unquote(urlsplit(link).path)).resolve() for link in pages[start].links}
    assert set(written(site, pages)) <= {start, *targets}


def test_nothing_is_loaded_from_the_network(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert not [address for address in page.loaded if urlsplit(address).scheme not in ("", "data")], path
        assert not urlsplit("".join(page.loaded)).netloc, path
    for sheet in site.rglob("*.css"):
        addresses = re.findall(r"(?:url\(|@import\s+)['\"]?([^'\")]+)", sheet.read_text())
        assert not [address for address in addresses if re.match(r"(https?:)?//", address)], sheet


def test_equations_are_mathml(site: Path, pages: dict[Path, Page]) -> None:
    for folder in ("methods", "metrics"):
        for path in (site / folder).glob("*.html"):
            assert pages[path].tags["math"] or path.stem in ("index", "edge_cases", "udr"), path
    text = (site / "methods" / "beta_vae.html").read_text()
    assert 'aria-label="E_q[-\\log p(x|z)] + \\beta\\, KL(q(z|x) \\| p(z))"' in text
    assert not any("mathjax" in address.lower() for page in pages.values() for address in page.loaded)


def documented_names(site: Path) -> set[str]:
    """Return the names in Sphinx's inventory of Python objects."""
    header, _, rest = (site / "objects.inv").read_bytes().partition(b"zlib.\n")
    assert header.startswith(b"# Sphinx inventory version 2")
    return {line.split()[0] for line in zlib.decompress(rest).decode().splitlines() if " py:" in line}


@pytest.mark.parametrize("package", PUBLIC)
def test_reference_documents_every_public_name(site: Path, package: str) -> None:
    """Every public function and class has its entry; registries, types and packages are described in words."""
    module = import_module(package)
    public = {name for name in module.__all__ if callable(getattr(module, name)) and not name.isupper()}
    public -= {"Hyper", "Loss", "Pair", "PairBuilder", "Progress"}
    names = documented_names(site)
    dataset_functions = {name.rpartition(".")[2] for name in names if name.startswith("unbraid.data.")}
    missing = {name for name in public if not {f"{package}.{name}", f"unbraid.{name}"} & names}
    assert not missing - (dataset_functions if package == "unbraid.data" else set())


def test_the_table_of_reproductions_can_be_sorted(site: Path) -> None:
    text = (site / "guides" / "reproduction_results.html").read_text()
    assert re.search(r'<div class="sortable docutils container">.*<table', text, re.DOTALL)
    assert "static/sort.js" in text
