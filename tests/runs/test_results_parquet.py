"""The results table as a Parquet file."""

from __future__ import annotations

from pathlib import Path

import pytest

import unbraid as ub
from unbraid.cli import main
from unbraid.runs.results import load_results


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
