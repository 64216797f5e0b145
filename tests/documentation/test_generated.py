"""The facts behind the generated pages: comparison tables and measured methods."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _generators_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("docs", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))


def function_names(file: str) -> set[str]:
    """Return the names of a file's functions."""
    return {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_claim_in_the_comparison_names_existing_tests() -> None:
    from generate.comparison import path_of_test
    from generate.peers import PEERS, TABLES

    named = {test for table in TABLES for feature in table.features for test in feature.tests}
    assert len(named) > 40
    for test in named:
        file, _, function = path_of_test(test).partition("::")
        assert function.startswith("test_"), test
        assert function in function_names(file), test
    for table in TABLES:
        assert set(table.peers) <= set(PEERS)
        for feature in table.features:
            marks = feature.peers.split()
            assert len(marks) == len(table.peers), feature.what
            assert set(marks) <= {"Y", "P", "."}, feature.what
            assert bool(feature.tests) == (feature.ours != "."), feature.what


def test_the_comparison_names_exactly_what_is_registered() -> None:
    from generate.peers import TABLES

    from unbraid.data import DATASETS
    from unbraid.methods import METHODS
    from unbraid.metrics import METRICS

    registries = {"methods": METHODS, "metrics": METRICS, "data": DATASETS}
    for table in TABLES:
        claimed = {name for feature in table.features for name in feature.names}
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


def test_commands_on_method_pages_give_the_specs_that_were_trained() -> None:
    import unbraid as ub
    from bench_methods import CASES, DATA, SEEDS
    from unbraid.cli.train import method_parser, spec_combinations
    from unbraid.methods import METHODS
    from unbraid.training.train import RunDefaults

    data = ub.data.load(DATA)
    for name, case in CASES.items():
        words = shlex.split(case.command())
        assert words[:3] == ["unbraid", "train", name]
        options = method_parser(name, METHODS[name]).parse_all(words[3:])
        choice = RunDefaults.choose(data, options.net, options.likelihood, options.precision)
        parsed = {spec.id for spec in spec_combinations(METHODS[name], options, choice)}
        settings = {key: value for key, value in case.settings().items() if key != "net"}
        own = RunDefaults.choose(data, case.net)
        assert parsed == {own.spec(case.method, seed=seed, **settings).id for seed in SEEDS}, name


@pytest.mark.parametrize(
    ("tex", "part"),
    [
        (r"\tfrac12 x", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
        (r"a \le b", "<mi>a</mi>"),
        (r"\arg\max_j c_j", "<mo>arg</mo>"),
    ],
)
def test_tex_becomes_mathml(tex: str, part: str) -> None:
    from extensions.mathml import mathml

    assert part in mathml(tex, display=False)


def test_unknown_tex_is_an_error() -> None:
    from extensions.mathml import mathml

    with pytest.raises(ValueError, match=r"must use TeX that latex2mathml knows.*nosuch"):
        mathml(r"\nosuch{x}", display=True)


def test_layers_are_those_of_the_contract() -> None:
    from extensions.layers import layers

    names = {name for layer in layers() for name in layer}
    package = ROOT / "src" / "unbraid"
    assert names == {p.stem for p in package.iterdir() if not p.stem.startswith("_") and p.suffix in ("", ".py")}


def test_the_page_of_pmp_shows_planned_runs_and_their_scores_when_they_exist() -> None:
    """Without results it says so. With the results of all parts it has the medians, with and without each term."""
    from generate.pmp import evidence_tables, planned_runs

    planned = planned_runs().assign(part="pmp-part")
    text = evidence_tables(planned.iloc[:0])
    assert "None of these runs has been trained yet" in text
    assert "| dsprites | PMP | 300,000 of 691,200 | 5 | 0 |" in text
    assert "| cars3d | PMP (without sparsity) | 16,470 | 5 | 0 |" in text
    seeds = planned.groupby(["data", "method"]).cumcount()
    scores = {"mig.discrete_mig": 0.1 * (planned["method"] == "pmp") + 0.2 + 0.01 * seeds}
    results = planned.assign(seed=seeds, level=0, strength=1.0, **scores)
    text = evidence_tables(results)
    assert "not been trained" not in text
    assert "| dsprites | PMP | 300,000 of 691,200 | 5 | 5 |" in text
    assert "| dsprites | PMP | 5 | 0.320 |" in text
    assert "| cars3d | Ada-GVAE | 5 | 0.220 |" in text
    assert "| cars3d | PMP (without sparsity) | 5 | 0.220 |" in text
    assert "better than that of Ada-GVAE in 2 of 2 combinations" in text


SCORED = re.compile(r"^\|.*\b(MIG|mig|DCI|FactorVAE score)\b.*\|.*\b0\.\d\d", re.MULTILINE)  # a row of scores
HEADS = re.compile(r"^\|.*\b(MIG|DCI)\b.*\|\n\|[-|]+\n\|.*\b0\.\d\d", re.MULTILINE)  # a table with a column of scores
STATES_DRAWS = re.compile(r"reference\s+draws|disjoint\s+draws|(other|different)\s+test\s+examples|no row is in both")


def test_pages_with_scores_say_how_rows_were_drawn() -> None:
    """Scores with different draws must not be compared, so every page with a table of scores says which it uses."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    scored = [page for page in pages if SCORED.search(page.read_text()) or HEADS.search(page.read_text())]
    assert len(scored) > 20
    silent = [str(page.relative_to(ROOT)) for page in scored if not STATES_DRAWS.search(page.read_text())]
    assert sorted(silent) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zoo_dsprites", "zoo_shapes3d", "zoo_digits"])
def test_the_pictures_of_the_zoo_are_current(name: str) -> None:
    """The script draws the committed picture, up to the order of sums in bfloat16, which depends on the processor."""
    import numpy as np
    from figures.zoo import FOLDER, PICTURES, traversal
    from PIL import Image

    assert len(PICTURES) == 3
    images = (Image.open(FOLDER / f"{name}.png"), traversal(name))
    stored, drawn = (np.asarray(image.convert("L"), float) for image in images)
    assert stored.shape == drawn.shape
    assert np.abs(stored - drawn).mean() < 1
