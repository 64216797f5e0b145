"""Own data from Parquet files, AnnData and Hugging Face datasets, with the real packages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unbraid as ub
from unbraid.data.loading import load_data

VECTORS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
FRAME = pd.DataFrame(
    {"a": VECTORS[:, 0], "b": VECTORS[:, 1], "c": VECTORS[:, 2], "shape": list("xyzxyz"), "size": [0, 0, 0, 1, 1, 1]}
)


def test_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow (extra parquet)")
    FRAME.to_parquet(tmp_path / "t.parquet")
    data = ub.data.load(str(tmp_path / "t.parquet"))
    assert (data.names, data.sizes, data.shape) == (("shape", "size"), (3, 2), (3,))
    order = np.lexsort((FRAME["size"], FRAME["shape"]))
    np.testing.assert_array_equal(data.images(slice(None)).numpy(), VECTORS[order])
    chosen = ub.data.load(str(tmp_path / "t.parquet?images=a,c&factors=size"))
    assert (chosen.names, chosen.shape, len(ub.data.load(chosen.name))) == (("size",), (2,), 6)
    with pytest.raises(ub.UserError, match=r"Unknown column of .*'siz'\. Did you mean 'size'"):
        ub.data.from_file(tmp_path / "t.parquet", factors="siz")
    with pytest.raises(ub.UserError, match=r"must be numbers\. Got .* in shape"):
        ub.data.from_file(tmp_path / "t.parquet", factors="size")
    (tmp_path / "u.parquet").write_bytes(b"PAR1")
    with pytest.raises(ub.UserError, match="must be a complete Parquet file"):
        ub.data.from_file(tmp_path / "u.parquet")


def test_missing_numbers_in_parquet_are_labels(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow (extra parquet)")
    from pyarrow import parquet

    columns = {"a": [0.5, 1.5, 2.5], "count": [1, None, 3], "b": [1.0, 2.0, 3.0]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    data = ub.data.from_file(tmp_path / "t.parquet")
    assert data.shape == (2,)
    assert (data.values, data.missing_labels) == ({"count": [1, 3]}, {"count": 1})
    assert ub.data.from_file(tmp_path / "t.parquet", images="a, b").shape == (2,)
    with pytest.raises(ub.UserError, match=r"either in images or in factors\. Got b in both"):
        ub.data.from_file(tmp_path / "t.parquet", images="a,b", factors="count,b")


@pytest.mark.filterwarnings("ignore")
def test_anndata(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason="needs anndata (extra anndata)")
    from scipy import sparse

    with pd.option_context("future.infer_string", False):  # anndata 0.12 does not write the strings of pandas 3
        labels = pd.DataFrame({"cell": pd.Categorical(["t", "b", None, "t", "b", "b"])}, index=list("uvwxyz"))
        content = anndata.AnnData(sparse.csr_matrix(VECTORS), obs=labels, layers={"half": VECTORS / 2})
        content.write_h5ad(tmp_path / "cells.h5ad")
    for data in (ub.data.load(str(tmp_path / "cells.h5ad")), load_data(content)):
        np.testing.assert_array_equal(data.images(slice(None)).numpy(), VECTORS)
        assert data.factors(slice(None))[:, 0].tolist() == [1, 0, -1, 1, 0, 0]
    half = ub.data.from_file(tmp_path / "cells.h5ad", images="half")
    np.testing.assert_array_equal(half.images(slice(None)).numpy(), VECTORS / 2)
    with pytest.raises(ub.UserError, match="Unknown layer of"):
        ub.data.from_file(tmp_path / "cells.h5ad", images="third")
    (run,) = ub.train("vae", content, steps=2, quiet=True)
    assert run.encode(VECTORS).shape == (6, 10)


def test_hugging_face_datasets() -> None:
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    from PIL import Image

    images = [Image.fromarray(np.full((8, 8), 40 * i, np.uint8)) for i in range(4)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    content = datasets.Dataset.from_dict({"image": images, "label": [0, 1, 1, 0]}, features=features)
    data: Any = load_data(content)
    assert (data.shape, data.names, data.values) == ((1, 8, 8), ("label",), {"label": ["cat", "dog"]})
    assert data.images([3]).max() == 120
    vectors = load_data(datasets.Dataset.from_dict({"x": VECTORS.tolist()}))
    np.testing.assert_allclose(vectors.images(slice(None)).numpy(), VECTORS)
    unknown = datasets.Dataset.from_dict({"x": VECTORS.tolist(), "kind": [None, "u", "v", "u", "v", None]})
    assert load_data(unknown).missing_labels == {"kind": 2}
    with pytest.raises(ub.UserError, match="must have a column of images or of lists"):
        load_data(datasets.Dataset.from_dict({"label": [1]}))


@pytest.mark.parametrize(("name", "package"), [("t.parquet", "pyarrow"), ("t.h5ad", "anndata")])
def test_missing_packages(name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ub.UserError, match=rf"needs the package {package}.*pip install \"unbraid\["):
        ub.data.from_file(tmp_path / name)
