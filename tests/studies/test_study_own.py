"""Studies in files of the user: grids in TOML and JSON, and functions in Python files."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from unbraid.errors import UserError
from unbraid.methods import VAE, BetaVAE
from unbraid.runs.spec import RunSpec
from unbraid.studies.runner import planned_runs
from unbraid.studies.study_files import find_study, read_grid


def test_grids_from_toml_and_json(tmp_path: Path) -> None:
    runs_a = 'data = ["toy", "sprites"]\nseeds = 3\nsteps = 50\n'
    toml = runs_a + '[[method]]\nname = "beta_vae"\nbeta = [1, 4]\n[[method]]\nname = "vae"\n'
    (tmp_path / "grid.toml").write_text(toml)
    grid = {"data": "toy", "method": {"name": "beta_vae", "beta": [1, 4]}, "seeds": 2}
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    runs = list(find_study(str(tmp_path / "grid.toml"))())
    assert len(runs) == 2 * 3 * 3
    assert [(run.spec.data, run.strength, run.level, run.spec.seed) for run in runs[3:6]] == [
        ("toy", 4.0, 1, seed) for seed in range(3)
    ]
    assert {run.spec.steps for run in runs} == {50}
    assert len(list(find_study(str(tmp_path / "grid.json"))())) == 4


def test_further_lists_and_names_become_variants(tmp_path: Path) -> None:
    """The first list defines the levels. Runs that differ in another list are different variants, by name."""
    text = """
        data = ["toy"]
        [[method]]
        name = "factor_vae"
        gamma = [10, 20]
        [[method]]
        name = "pmp"
        consistency = [1, 100]
        subspaces = [2, 3]
        [[method]]
        name = "pmp"
        variant = "without sparsity"
        sparsity = 0
    """
    (tmp_path / "mine.toml").write_text(textwrap.dedent(text))
    runs = list(find_study(str(tmp_path / "mine.toml"))())
    keys = [(run.facts()["method"], run.variant, run.level, run.strength) for run in runs]
    assert keys == [
        ("factor_vae", "", 0, 10.0), ("factor_vae", "", 1, 20.0),
        ("pmp", "subspaces = 2", 0, 1.0), ("pmp", "subspaces = 3", 0, 1.0),
        ("pmp", "subspaces = 2", 1, 100.0), ("pmp", "subspaces = 3", 1, 100.0),
        ("pmp", "without sparsity", 0, 0.0),
    ]  # fmt: skip


def test_studies_from_python(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import unbraid as ub\n"
        "def study():\n"
        "    for seed in range(3):\n"
        "        yield ub.RunSpec(ub.methods.BetaVAE(beta=2.0), 'toy', seed, steps=5)\n"
    )
    runs = list(find_study(str(tmp_path / "mine.py"))())
    assert [(run.index, run.spec.seed, run.strength) for run in runs] == [(0, 0, 2.0), (1, 1, 2.0), (2, 2, 2.0)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "data = [", "cannot be read"),
        ("a.toml", 'data = ["toy"]', r"must have an entry data .* \[\[method\]\]"),
        ("a.toml", 'data = ["toy"]\nstep = 3\n[[method]]\nname = "vae"', "Unknown entry.*steps"),
        ("a.py", "x = 1", r"must have a function study\(\)"),
        ("a.py", "def study(:", "raised SyntaxError"),
        ("a.json", "[1]", "must contain a table"),
        ("a.toml", 'data = ["toy"]\nseeds = [1]\n[[method]]\nname = "vae"', "has a wrong entry"),
        ("a.toml", 'data = ["toy"]\n[[method]]\nname = "vae"\nbeta = 3', "has a wrong entry"),
        ("a.txt", "", "Unknown study"),
    ],
)
def test_invalid_studies_raise(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        list(find_study(str(tmp_path / name))())
    with pytest.raises(UserError, match="There is no file"):
        find_study(str(tmp_path / "nothing.toml"))


@pytest.mark.parametrize("content", ["null", "[1, 2]", '"text"'])
def test_a_file_without_a_table_is_shown_as_it_is(content: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(
        UserError, match=re.escape(f"must contain a table with data and method. Got {content} instead.")
    ):
        read_grid(tmp_path / "study.json")


def test_a_list_of_specs_has_the_levels_of_its_sweep() -> None:
    methods = (BetaVAE(beta=4.0), VAE(), BetaVAE(beta=1.0))
    specs = [RunSpec(method, "toy", seed) for method in methods for seed in (0, 1)]
    runs = planned_runs(specs)
    assert [run.index for run in runs] == list(range(6))
    assert [(run.strength, run.level) for run in runs[::2]] == [(4.0, 1), (0.0, 0), (1.0, 0)]
