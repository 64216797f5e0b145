"""The documentation site: whole, offline, reachable; and the tables behind its pages."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support.sites import built

ROOT = Path(__file__).parents[2]
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
LOADING = {
    ("img", "src"),
    ("script", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
}


@pytest.fixture(autouse=True)
def documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the generators be imported as their scripts do."""
    for folder in ("docs", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))


class Reader(HTMLParser):
    """A page's tags, addresses and anchors, with every tag that is not closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.tags: Counter[str] = Counter()
        self.words: dict[str, str] = {}
        self.unnamed: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags[tag] += 1
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" and "href" in given else []
        self.loaded += [value for name, value in given.items() if (tag, name) in LOADING]
        self.unnamed += [str(given)] if tag == "img" and not given.get("alt") else []
        if len(given) != len(attrs):
            self.wrong.append(f"{tag} has an attribute twice")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1

    def handle_data(self, data: str) -> None:
        if self.open:
            self.words[self.open[-1]] = self.words.get(self.open[-1], "") + data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Reader]:
    return {path: Reader(path.read_text()) for path in sorted(site.rglob("*.html"))}


def test_pages_are_sound(pages: dict[Path, Reader]) -> None:
    """Tags are closed in order, anchors are unique, and every page has one title, one first heading and one text."""
    for path, page in pages.items():
        assert not page.wrong, path
        assert len(page.ids) == len(set(page.ids)), path
        assert [page.tags[tag] for tag in ("title", "h1", "main")] == [1, 1, 1], path
        assert page.words["title"].strip(), path
        assert not page.unnamed, path


def test_every_page_has_its_markdown_and_the_reverse(site: Path, pages: dict[Path, Reader]) -> None:
    written = {path.relative_to(site).with_suffix("").as_posix() for path in pages}
    docs = ROOT / "docs"
    assert written == {p.relative_to(docs).with_suffix("").as_posix() for p in docs.rglob("*.md")} | {
        "contributing",
        "changelog",
    }


def test_links_and_pictures_are_there(pages: dict[Path, Reader]) -> None:
    for path, page in pages.items():
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme in ("http", "https", "data"):
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert place.is_file(), f"{path.name}: {address}"
            if parts.fragment:
                assert parts.fragment in pages[place].ids, f"{path.name}: {address}"


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Reader]) -> None:
    for path, page in pages.items():
        assert not [address for address in page.loaded if urlsplit(address).scheme not in ("", "data")], path
        assert not re.search(r"style=\"[^\"]*url\(", path.read_text()), path
    styles = [path.read_text() for path in [*site.rglob("*.css"), *site.rglob("search.js")]]
    assert len(styles) == 2
    assert not any(re.search(r"https?://|@import|url\(", style) for style in styles)


def test_every_page_is_reachable(site: Path, pages: dict[Path, Reader]) -> None:
    """From the navigation of the first page, and so from that of any other."""
    for path, page in pages.items():
        targets = {(path.parent / unquote(urlsplit(a).path)).resolve() for a in page.links if not urlsplit(a).scheme}
        assert set(pages) <= targets, path
    assert site / "index.html" in pages


def test_equations_are_drawn_and_labelled(pages: dict[Path, Reader], site: Path) -> None:
    for folder in ("methods", "metrics"):
        for path in (site / folder).glob("*.html"):
            assert pages[path].tags["svg"] > 0, path
    text = (site / "methods" / "beta_vae.html").read_text()
    assert 'aria-label="E_q[-\\log p(x|z)] + \\beta\\, KL(q(z|x) \\| p(z))"' in text
    assert not any("$$" in page.words.get(tag, "") for page in pages.values() for tag in ("p", "div", "main"))


def test_the_search_knows_every_page_and_heading(site: Path, pages: dict[Path, Reader]) -> None:
    script = (site / "search-index.js").read_text()
    rows = json.loads(script.removeprefix("window.unbraidIndex = ").removesuffix(";\n"))
    places = [urlsplit(row[0]) for row in rows]
    assert {site / place.path for place in places} == set(pages)
    assert all(place.fragment in pages[site / place.path].ids for place in places)
    assert any("a perfect code does not" in " ".join(row[2:]).lower() or "perfect code not" in row[2] for row in rows)


@pytest.mark.parametrize(
    ("tex", "known"),
    [
        (r"\tfrac12 x", r"\frac{1}{2} x"),
        (r"\frac d2", r"\frac{d}{2}"),
        (r"\cos\frac\pi8 \sqrt 2", r"\cos\frac{\pi}{8} \sqrt{2}"),
        (r"a \le b \ge c", r"a \leq b \geq c"),
        (r"\left( x \right)", r"\left( x \right)"),
        (r"N\Big(x\Big)", r"N\left(x\right)"),
        (r"\sqrt{.05} + 1.5", r"\sqrt{0.05} + 1.5"),
    ],
)
def test_tex_in_the_words_of_mathtext(tex: str, known: str) -> None:
    from site_math import svg, understood

    assert understood(tex) == known
    assert svg(tex).count("<path") == 1


def test_large_fractions_stand_alone() -> None:
    from site_math import understood

    assert understood(r"\frac{1}{k} + \tfrac12", display=True) == r"\dfrac{1}{k} + \frac{1}{2}"


def test_unknown_tex_is_refused() -> None:
    from site_math import svg

    with pytest.raises(ValueError, match=r"must be in the TeX that mathtext knows.*nosuch"):
        svg(r"\nosuch{x}")


def test_markdown_in_all_its_parts() -> None:
    from site_markdown import render

    page = render("# T\n\na $x_1$ `$no$` 5$\n\n$$\ny\n$$\n\n## A b\n\n## A b\n\n| h |\n|---|\n| <c> |\n\n[l](b.md#c)",
                  lambda target: target.replace(".md", ".html"))  # fmt: skip
    assert page.title == "T"
    assert [anchor for _, anchor, _ in page.headings] == ["t", "a-b", "a-b-2"]
    assert page.body.count("<svg") == 2
    assert "<code>$no$</code> 5$" in page.body
    assert 'href="b.html#c"' in page.body
    assert page.body.count("<table>") == page.body.count("</table></div>") == 1


def functions(file: str) -> set[str]:
    """The names of a test file's functions."""
    return {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_cell_of_ours_has_its_tests() -> None:
    from compare_table import PEERS, TABLES

    named = {test for table in TABLES for row in table.rows for test in row.tests}
    assert len(named) > 40
    for test in named:
        file, _, function = test.partition("::")
        assert function.startswith("test_"), test
        assert function in functions(file), test
    for table in TABLES:
        assert set(table.peers) <= set(PEERS)
        for row in table.rows:
            marks = row.peers.split()
            assert len(marks) == len(table.peers), row.what
            assert set(marks) <= {"Y", "P", "."}, row.what
            assert bool(row.tests) == (row.ours != "."), row.what


def test_what_we_claim_is_in_the_registries_and_the_reverse() -> None:
    from compare_table import TABLES

    from unbraid.data import DATASETS
    from unbraid.methods import METHODS
    from unbraid.metrics import METRICS

    registries = {"methods": METHODS, "metrics": METRICS, "data": DATASETS}
    for table in TABLES:
        claimed = {name for row in table.rows for name in row.names}
        assert claimed == set(registries.get(table.registry, ())), table.title


def test_every_method_was_measured_and_drawn() -> None:
    from bench_methods import CASES, DATA, SCORES, SEEDS
    from unbraid.methods import METHODS

    bench = json.loads((ROOT / "benchmarks" / "results" / "bench_methods.json").read_text())
    assert list(CASES) == list(METHODS)
    assert set(bench["methods"]) == {"untrained", *METHODS}
    for name, case in CASES.items():
        row, picture = bench["methods"][name], ROOT / "docs" / "pictures" / "methods" / f"{name}.png"
        assert row["command"] == case.command(), name
        assert row["diverged"] == 0, name
        assert {metric: len(row["scores"][metric]) for metric in SCORES} == dict.fromkeys(SCORES, len(SEEDS)), name
        assert 1_000 < picture.stat().st_size < 30_000, name
    assert bench["data"] == DATA


def test_commands_of_the_method_pages_are_what_was_trained() -> None:
    """Typed in, they give the specs that the benchmark trained."""
    import unbraid as ub
    from bench_methods import CASES, DATA, SEEDS
    from unbraid.cli.parser import Parser
    from unbraid.cli.train import method_parser, specs
    from unbraid.methods import METHODS
    from unbraid.training.train import Choice

    data = ub.data.load(DATA)
    for name, case in CASES.items():
        words = shlex.split(case.command())
        assert words[:3] == ["unbraid", "train", name]
        options = method_parser(Parser, name, METHODS[name]).parse_all(words[3:])
        choice = Choice.of(data, options.net, options.likelihood, options.precision)
        typed = {spec.id for spec in specs(METHODS[name], options, choice)}
        settings = {key: value for key, value in case.settings().items() if key != "net"}
        own = Choice.of(data, case.net)
        assert typed == {own.spec(case.method, seed=seed, **settings).id for seed in SEEDS}, name
