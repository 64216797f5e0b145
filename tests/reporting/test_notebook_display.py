"""Runs, scores, comparisons, reports, traversals and analyses show as HTML in notebooks."""

from __future__ import annotations

import html
import pickle
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import unbraid as ub
from support.training import quick_train
from unbraid.methods import BetaVAE
from unbraid.reporting import report_path
from unbraid.reporting.report_path import ReportPath


class Cells(HTMLParser):
    """The texts of the cells of all tables, and the number of elements that were opened and closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open += tag not in ("img", "br")
        if tag in ("td", "th"):
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.open -= 1

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data


def cells(shown: object) -> list[str]:
    parsed = Cells(shown._repr_html_())  # type: ignore[attr-defined]
    assert parsed.open == 0, "every element is closed"
    return parsed.texts


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[ub.Run]:
    folder = tmp_path_factory.mktemp("shown") / "runs"
    return quick_train(folder, [BetaVAE(beta=beta) for beta in (1.0, 8.0)], data="sprites", seeds=[0], steps=1)


def test_a_run_shows_its_settings(runs: list[ub.Run]) -> None:
    shown = cells(runs[0])
    assert shown[:2] == ["run", runs[0].id]
    for name, value in {"beta": "1.000", "data": "sprites", "state": "trained", "folder": str(runs[0].path)}.items():
        assert shown[shown.index(name) + 1] == value


def test_lists_of_runs_show_one_row_per_run(runs: list[ub.Run]) -> None:
    assert isinstance(runs, list)
    for listed in (runs, ub.load_runs(runs[0].path.parent) if runs[0].path else []):
        shown = cells(listed)
        assert shown[4:7] == [runs[0].id, "beta_vae beta=1", "trained"]
        assert shown[8:10] == [runs[1].id, "beta_vae beta=8"]
    assert "All runs have method=beta_vae, data=sprites" in runs._repr_html_()  # type: ignore[attr-defined]
    assert "VAENet" not in repr(runs)
    (diverged,) = quick_train(seeds=[0], steps=1)
    diverged.divergence = {"step": 3, "term": "<loss>"}
    assert "diverged at step 3 in &lt;loss&gt;" in diverged._repr_html_()


def test_scores_show_the_main_scores(runs: list[ub.Run]) -> None:
    rows = ub.score(runs, "mig,sap", quiet=True)
    value = f"{rows[1]['mig.discrete_mig']:.3f}"
    shown = cells(rows)
    assert shown[:4] == ["run", "settings", "mig", "sap"]
    assert shown[8:11] == [rows[1]["run"], "beta_vae beta=8", value]
    assert value in str(rows)
    assert "rows and tested on" in str(rows)
    assert rows == [dict(row) for row in rows], "the rows are an ordinary list of dictionaries"
    ranked = ub.select(runs, examples=50, quiet=True)
    assert cells(ranked)[:4] == ["run", "settings", "informative latents", "udr"]
    factors = ub.data.load("toy").factors(slice(None))
    arrays = ub.score(codes=factors + 0.5, factors=factors, metrics="mig", quiet=True)
    assert cells(arrays)[:3] == ["codes", "mig", "codes"]


def test_a_comparison_shows_its_tables(runs: list[ub.Run]) -> None:
    ub.score(runs, "mig", quiet=True)
    comparison = ub.compare(*runs, metrics="mig")
    shown = cells(comparison)
    assert shown[shown.index("beta") + 1 :][:2] == ["1", "8"]
    assert str(comparison) == repr(comparison)
    assert "A test needs scores of at least 3 seeds per side" in comparison._repr_html_()


def test_a_report_shows_its_page(runs: list[ub.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ub.report(runs, tmp_path / "a.html", scoring=False, best=1, quiet=True)
    assert isinstance(page, ReportPath)
    shown = page._repr_html_()
    assert shown is not None
    (document,) = re.findall(r'sandbox="allow-scripts" [^>]*srcdoc="([^"]*)"', shown)
    assert html.unescape(document) == page.read_text()
    assert page == tmp_path / "a.html"
    assert pickle.loads(pickle.dumps(page)) == page
    assert page.parent._repr_html_() is None if isinstance(page.parent, ReportPath) else True
    monkeypatch.setattr(report_path, "MAX_SHOWN_BYTES", 10)
    assert "too large for a notebook" in (page._repr_html_() or "")
    page.unlink()
    assert page._repr_html_() is None


def test_a_traversal_shows_its_picture() -> None:
    (run,) = quick_train(data="sprites", steps=0)
    picture = ub.traverse(run, columns=3)
    assert picture.paths == [], "the run has no folder"
    assert re.match(r'<img alt="An example, .*latent \d.*" src="data:image/png;base64,', picture._repr_html_())


def test_an_analysis_shows_its_answer_and_figure() -> None:
    result = ub.analyse(ub.analysis.example_results(seeds=3, data=["dsprites"]), "variance")["variance"]
    shown = result._repr_html_()
    assert html.escape(result.text) in shown
    assert "data:image/png;base64," in shown
