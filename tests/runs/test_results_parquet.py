"""The results table as a Parquet file."""

from __future__ import annotations

from pathlib import Path

import pytest

import unbraid as ub
from unbraid.cli import main
from unbraid.runs.results import load_results


def test_a_parquet_file_with_an_unknown_encoding_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For such a file, pyarrow raises a NotImplementedError."""
    pandas = pytest.importorskip("pandas")

    def fail(file: Path) -> None:
        raise NotImplementedError("Unknown encoding type")

    monkeypatch.setattr("unbraid.runs.results._require_pyarrow", lambda file: None)
    monkeypatch.setattr(pandas, "read_parquet", fail)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ub.UserError, match="must be a results table in Parquet format"):
        load_results(tmp_path / "a.parquet")


def test_parquet_is_the_same_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    methods = [ub.methods.BetaVAE(beta=2.0), ub.methods.DiffusionVAE(), ub.methods.VAE()]
    ub.train(methods, "toy", steps=2, latents=3, out=tmp_path / "runs", quiet=True)
    file = tmp_path / "new" / "results.parquet"
    command = ["index", str(tmp_path / "runs"), "--out", str(file)]
    if main(["index", str(tmp_path / "runs"), "--out", str(tmp_path / "results.txt")]) != 2:
        pytest.fail("a file that does not end in .parquet was accepted")
    pytest.importorskip("pyarrow", reason="needs pyarrow (extra parquet)")
    assert main(command) == 0
    pandas.testing.assert_frame_equal(load_results(file), load_results(tmp_path / "runs"), check_dtype=False)
    file.write_bytes(b"no table")
    with pytest.raises(ub.UserError, match="must be a results table in Parquet format"):
        load_results(file)
