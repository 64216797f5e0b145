"""The pages that compare unbraid with other libraries, from the facts in generate/peers.py."""

from __future__ import annotations

from pathlib import Path

from generate import ROOT
from generate.markdown import table
from generate.peers import PEERS, TABLES, Feature, FeatureTable

PAGE = ROOT / "docs" / "design" / "compare.md"
WORDS = {"Y": "yes", "P": "partly", ".": "-"}
TESTS_PAGE = ROOT / "docs" / "design" / "compare_tests.md"
HEAD = """# How we compare

After reading this page you know what unbraid has, what other libraries have, and when another library is the better
choice.

Choose another library if it has a feature that you need and that unbraid lacks: see [what unbraid does not
have](#what-unbraid-does-not-have).

The other libraries were surveyed in November 2026, from their sources and issue threads. Projects change, so check
before you decide, and tell us what is out of date. `make docs` generates this page from `docs/generate/peers.py`. Each
*yes* and *partly* in the column of unbraid is verified by [tests](compare_tests.md).

"""
LEGEND = """The tables below have one row per feature, and one column per library, under its short name.
*yes* means that the library has the feature. *partly* means that it has a part of the feature, or needs another package
for it. A dash means that it does not have the feature. The column *elsewhere* names other projects that have it."""
TESTS_HEAD = """# The tests behind the comparison

This page lists the tests that verify each *yes* and *partly* of unbraid in [the comparison](compare.md). Another test
fails if a listed test does not exist, or if the comparison names a method, metric or dataset that is not registered.

"""


def our_cell(feature: Feature, folder: str) -> str:
    """Return the cell of unbraid for a feature, with links to the methods, metrics or datasets that it names."""
    if feature.ours == ".":
        return WORDS["."]
    word = f"partly: {feature.partly}" if feature.partly else WORDS[feature.ours]
    links = ", ".join(f"[{name}](../{folder}/{name}.md)" for name in feature.names)
    return f"**{word}**" + (f" ({links})" if links else "")


def feature_table(kind: FeatureTable) -> str:
    """Return a table with one row per feature and one column per library, unbraid first."""
    elsewhere = any(feature.elsewhere for feature in kind.features)
    body = []
    for feature in kind.features:
        cells = [feature.what, our_cell(feature, kind.registry), *(WORDS[mark] for mark in feature.peers.split())]
        body.append([*cells, *([feature.elsewhere] if elsewhere else [])])
    return table(["feature", "unbraid", *kind.peers, *(["elsewhere"] if elsewhere else [])], body)


def path_of_test(test: str) -> str:
    """Return the path of a test, `folder/file::function`, from the name of its file and function."""
    file, _, function = test.partition("::")
    (path,) = (ROOT / "tests").rglob(file)
    return f"{path.relative_to(ROOT).as_posix()}::{function}"


def table_of_tests(kind: FeatureTable) -> str:
    """Return a table of the tests that verify each cell of unbraid."""
    ours = [feature for feature in kind.features if feature.tests]
    body = [[feature.what, "<br>".join(f"`{path_of_test(test)}`" for test in feature.tests)] for feature in ours]
    return table(["feature", "tests"], body)


def coverage(kind: FeatureTable) -> str:
    """Return how many of the reference library's features we have."""
    theirs = [one for one in kind.features if one.peers.split()[kind.peers.index("DL")] != "."]
    ours = sum(one.ours == "Y" for one in theirs)
    partly = sum(one.ours == "P" for one in theirs)
    rest = f", and {partly} partly" if partly else ""
    return f"Of the {len(theirs)} features below that disentanglement_lib (DL) has, unbraid has {ours}{rest}."


def missing() -> str:
    """Return what others have and we do not."""
    lines = []
    for kind in TABLES:
        absent = [one.what for one in kind.features if one.ours == "."]
        partial = [f"{one.what} ({one.partly})" for one in kind.features if one.partly]
        sentences = [f"{'; '.join(absent)}."] if absent else []
        sentences += [f"{'Partly' if absent else 'partly'}: {'; '.join(partial)}."] if partial else []
        lines += [f"- **{kind.title}**: {' '.join(sentences)}"] if sentences else []
    return "\n".join(lines)


def comparison_pages() -> dict[Path, str]:
    """Return the comparison, and the page of the tests behind it."""
    projects = [[short, *facts] for short, facts in PEERS.items()]
    parts = [
        "## The libraries\n\n" + table(["short name", "project", "licence", "last activity seen, built on"], projects),
        f"## What unbraid does not have\n\nAt least one other project has the following:\n\n{missing()}",
        f"## All features\n\n{LEGEND}",
        *(f"### {kind.title}\n\n{coverage(kind)}\n\n{feature_table(kind)}" for kind in TABLES),
    ]
    tests = "\n\n".join(f"## {kind.title}\n\n{table_of_tests(kind)}" for kind in TABLES)
    return {PAGE: HEAD + "\n\n".join(parts) + "\n", TESTS_PAGE: TESTS_HEAD + tests + "\n"}
