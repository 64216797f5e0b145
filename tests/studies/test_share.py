"""Publishing runs with checksums, and taking them in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_study import order, small, table_of

from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.runs.run import load_runs
from unbraid.studies.runner import run_study
from unbraid.studies.share import SUMS, adopt, check, publish


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    run_study(small(seeds=1), order(folder), quiet=True)
    return folder


def test_published_and_adopted_is_the_same(study: Path, tmp_path: Path) -> None:
    sums = publish(study, tmp_path / "out")
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=sums.parent, check=True)
    (tmp_path / "mine").mkdir()
    assert adopt(tmp_path / "out", tmp_path / "mine") == 4
    assert adopt(tmp_path / "out", tmp_path / "mine") == 0
    assert table_of(tmp_path / "mine").equals(table_of(study))
    assert len(load_runs(tmp_path / "mine")) == 4


def test_results_alone_are_smaller_and_can_be_read(study: Path, tmp_path: Path) -> None:
    publish(study, tmp_path / "out", weights=False)
    assert not list((tmp_path / "out").rglob("*.safetensors"))
    check(tmp_path / "out")


@pytest.mark.parametrize("harm", ["change", "remove", "add", "sums"])
def test_harm_is_noticed_and_nothing_copied(harm: str, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish(study, out)
    victim = next(out.glob("*/log.jsonl"))
    {
        "change": lambda: victim.write_text("{}"),
        "remove": victim.unlink,
        "add": lambda: (victim.parent / "extra").write_text("x"),
        "sums": (out / SUMS).unlink,
    }[harm]()
    with pytest.raises(UserError, match=SUMS):
        adopt(out, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_refusals(study: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UserError, match="must be empty or new"):
        publish(study, tmp_path / "full")
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="No finished runs"):
        publish(tmp_path / "none", tmp_path / "out")


def test_command(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["share", "export", str(study), str(tmp_path / "out")]) == 0
    assert main(["share", "check", str(tmp_path / "out")]) == 0
    (tmp_path / "mine").mkdir()
    assert main(["share", "import", str(tmp_path / "out"), str(tmp_path / "mine")]) == 0
    assert "4 new runs" in capsys.readouterr().out
    assert main(["share", "export", str(study)]) == 2
    assert "Say where to" in capsys.readouterr().err
