"""Names of metrics with options, such as "dci_es?probes=rff"."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import unbraid as ub
from unbraid import metrics
from unbraid.errors import UserError
from unbraid.metrics import METRICS, TRAITS, headline
from unbraid.metrics.protocol import are_named, identity, resolve_metric_names
from unbraid.metrics.rows import Rows
from unbraid.runs.results import load_results, write_results
from unbraid.runs.scores import read_scores

FACTORS = np.indices((3, 4, 5)).reshape(3, -1).T.repeat(3, axis=0)
CODES = FACTORS + 0.3 * np.random.default_rng(0).normal(size=FACTORS.shape)
ROWS = Rows(CODES, FACTORS, np.arange(0, 180, 2), np.arange(1, 180, 2))
SIZES = {"train": 90, "test": 90, "table": 180}


def test_a_name_with_options_computes_the_metric_with_these_options() -> None:
    name = "dci_es?probes=rff&sizes=8,16"
    scores = ROWS.score([name, "mig?estimator=miller-madow", "omes?alpha=0.2"], seed=0).values_or_raise()
    arrays = CODES[::2], FACTORS[::2], CODES[1::2], FACTORS[1::2]
    assert scores[name] == metrics.dci_es(*arrays, probes="rff", sizes=(8, 16))
    assert scores["mig?estimator=miller-madow"] == metrics.mig(*arrays[:2], estimator="miller-madow")
    assert scores["omes?alpha=0.2"] == metrics.omes(CODES, FACTORS, alpha=0.2)
    assert headline(name) == f"{name}.mean_informativeness"
    assert TRAITS["omes?alpha=0.2"].whole_table


def test_equal_options_have_one_name() -> None:
    text = "dci_es?sizes=16,32&probes=rff, mig?bins=20, dci_es?probes=rff&sizes=16,32,sap,factor_vae?prune=1e-3"
    expected = ["dci_es?probes=rff&sizes=16,32", "mig", "sap", "factor_vae?prune=0.001"]
    assert resolve_metric_names(text) == resolve_metric_names(text.split(",")) == expected
    assert resolve_metric_names(expected) == expected
    assert resolve_metric_names("mig,all,mig?bins=5") == [*METRICS, "mig?bins=5"]
    assert not are_named("all,mig?bins=5")
    assert all(METRICS.canonical_name(f"{name}?trees=fast") == name for name in ("dci", "nk", "fairness"))


def test_options_are_part_of_the_identity() -> None:
    plain, other = (identity(name, 0, SIZES) for name in ("dci_es", "dci_es?probes=mlp&sizes=0,16"))
    assert not {"probes", "sizes"} & set(plain["options"])  # kept scores stay valid
    assert other["options"] == {**plain["options"], "probes": "mlp", "sizes": [0, 16]}
    assert identity("jemmig?estimator=neighbours", 0, SIZES)["options"] == {"estimator": "neighbours", "bins": 20}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope?bins=1", "Unknown metric 'nope'"),
        ("mig?bin=10", "Unknown option of mig 'bin'. Did you mean 'bins'"),
        ("dci?seed=1", "Unknown option of dci 'seed'"),
        ("beta_vae?draws=reference", "Unknown option of beta_vae 'draws'"),
        ("mig?continuous=1", "Unknown option of mig 'continuous'"),
        ("mig?bins=ten", "The option 'bins' of mig must be a whole number. Got 'ten'"),
        ("mig?bins=2.5", "must be a whole number"),
        ("downstream_lr?sizes=a", "must be whole numbers"),
        ("omes?alpha=half", "must be a number"),
        ("mig?", "written once each"),
        ("mig?bins=10&bins=11", "written once each"),
        ("", "At least one metric must be named"),
        (" ,", "At least one metric must be named"),
    ],
)
def test_wrong_options_are_rejected(name: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_metric_names(name)
    assert message in str(caught.value)
    assert name not in METRICS


def test_every_option_of_every_metric_can_be_written_in_a_name() -> None:
    from unbraid.metrics.options import option_parameters

    texts = {"str": "other", "int": "3", "float": "0.75", "int | float": "0.75"}
    for name, metric in METRICS.items():
        for option, parameter in option_parameters(metric).items():
            written = f"{name}?{option}={texts.get(parameter.annotation, '7,9')}"
            (value,) = METRICS.options(written).values()
            assert value == {"other": "other", "3": 3, "0.75": 0.75}.get(written.partition("=")[2], (7, 9)), written


def test_runs_keep_scores_of_different_options_apart(tmp_path: Path) -> None:
    runs = ub.train("vae", data="toy", seeds=range(3), steps=5, latents=4, out=tmp_path / "a", quiet=True)
    ub.train("vae", data="toy", seeds=range(3), steps=6, latents=4, out=tmp_path / "b", quiet=True)
    names = ["mig", "mig?bins=5"]
    path = runs[0].path
    assert path is not None
    rows = ub.score(runs, names, quiet=True)
    assert rows[0]["mig.discrete_mig"] != rows[0]["mig?bins=5.discrete_mig"]
    assert "mig?bins=5" in str(rows)
    count = len(read_scores(path))
    ub.score(runs, "mig?bins=20,mig?bins=5", quiet=True)
    assert len(read_scores(path)) == count
    write_results(tmp_path / "a")
    table = load_results(tmp_path / "a").set_index("run")
    assert table.loc[runs[0].id, "mig?bins=5.discrete_mig"] == rows[0]["mig?bins=5.discrete_mig"]
    comparison = ub.compare(tmp_path / "a", tmp_path / "b", metrics=names, score=True, quiet=True)
    assert [test.metric for test in comparison.tests] == names
    assert ub.compare(tmp_path / "a", tmp_path / "b").metrics == names
