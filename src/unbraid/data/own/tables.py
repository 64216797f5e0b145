"""Read users' own data from tables: Parquet files, and AnnData objects and files (.h5ad)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unbraid.errors import UserError, unknown_name_message
from unbraid.runtime.read_errors import READ_ERRORS, read_reason


class Table(NamedTuple):
    """The content of a table.

    Attributes:
        examples: The vectors, of shape (n, d).
        factors: A dictionary from the name of each factor to its column, or None if the table has no factors.
    """

    examples: Any
    factors: dict[str, Any] | None


def read_parquet(file: Path, images: str | None, factors: str | None) -> Table:
    """Read a Parquet file. By default, columns of floats form the vectors, and the other columns are factors.

    Args:
        file: The file.
        images: Names of the columns that form the vectors, separated by commas. The default is all columns that are not
            named in `factors`, or all columns of floats if `factors` is not given.
        factors: Names of the columns that are factors, separated by commas. The default is all columns that are neither
            floats nor part of the vectors.
    """
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise _missing(file, "pyarrow", "parquet") from error
    try:
        frame = pyarrow.parquet.read_table(file).to_pandas(integer_object_nulls=True)
    except READ_ERRORS as error:
        raise UserError(
            f"{file} must be a complete Parquet file. Reading it failed: {read_reason(error)}. Write the file again."
        ) from error
    names = [str(name) for name in frame.columns]
    frame.columns = names
    floats = [name for name in names if frame[name].dtype.kind == "f"]
    labels = _columns(file, factors, names) if factors is not None else [name for name in names if name not in floats]
    if factors is not None:
        floats = [name for name in names if name not in labels]
    chosen = _columns(file, images, names) if images is not None else floats
    if not chosen:
        raise UserError(
            f"{file} must have columns of floats, which form the vectors. Got {', '.join(names) or 'none'} instead. "
            "Name the columns with images=A,B."
        )
    for name in chosen:
        if frame[name].dtype.kind not in "buif":
            raise UserError(
                f"The columns of vectors in {file} must be numbers. Got {frame[name].dtype} in {name}. Name the "
                "factors with factors=A,B, or the columns of the vectors with images=A,B."
            )
    if factors is not None and (both := [name for name in labels if name in chosen]):
        raise UserError(f"A column must be either in images or in factors. Got {both[0]} in both. Remove one.")
    used = [name for name in labels if name not in chosen]
    return Table(frame[chosen].to_numpy(np.float32), {name: frame[name] for name in used} or None)


def read_h5ad(file: Path, images: str | None, factors: str | None) -> Table:
    """Read an AnnData file (see `anndata_table`)."""
    try:
        import anndata
    except ModuleNotFoundError as error:
        raise _missing(file, "anndata", "anndata") from error
    try:
        content = anndata.read_h5ad(file)
    except Exception as error:  # anndata and h5py raise errors of many types
        raise UserError(
            f"{file} must be a complete .h5ad file. Reading it failed: {read_reason(error)}. Write the file again."
        ) from error
    return anndata_table(content, images, factors, file)


def anndata_table(content: Any, images: str | None = None, factors: str | None = None, where: object = "data") -> Table:
    """Return the matrix of an AnnData object as vectors, and the columns of its `obs` as factors.

    Args:
        content: The object.
        images: The name of the layer that contains the vectors. The default is the matrix `X`.
        factors: Names of the columns of `obs`, separated by commas. The default is all columns.
        where: Where the object comes from, for error messages.
    """
    if images is not None and images not in content.layers:
        raise UserError(unknown_name_message(f"layer of {where}", images, list(content.layers)))
    matrix = content.X if images is None else content.layers[images]
    if matrix is None:
        raise UserError(f"{where} has no matrix X. Name a layer with images=LAYER.")
    dense = matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)
    columns = list(map(str, content.obs.columns))
    chosen = columns if factors is None else _columns(where, factors, columns)
    labels = {name: _plain_column(content.obs[name]) for name in chosen}
    return Table(np.asarray(dense, np.float32), labels or None)


def is_anndata(value: Any) -> bool:
    """Return whether a value looks like an AnnData object."""
    return all(hasattr(value, name) for name in ("X", "obs", "layers"))


def is_huggingface_dataset(value: Any) -> bool:
    """Return whether a value has the attributes of a `datasets.Dataset` of Hugging Face."""
    return all(hasattr(value, name) for name in ("features", "column_names", "__getitem__", "__len__"))


def huggingface_examples(dataset: Any) -> Iterator[tuple[Any, dict[str, Any] | None]]:
    """Yield the examples of a `datasets.Dataset` as (x, factors).

    The examples x come from the first column that contains images, arrays or lists. All columns of numbers or words are
    factors. In a column of the type `ClassLabel`, numbers are replaced by the names of the classes.
    """
    if not len(dataset):
        raise UserError("A dataset must have at least one example. Got none instead.")
    first = dataset[0]
    column = next((name for name in dataset.column_names if _is_example(first[name])), None)
    if column is None:
        raise UserError(
            f"A Hugging Face dataset must have a column of images or of lists of numbers. Got the columns "
            f"{', '.join(dataset.column_names)} instead."
        )
    labels = [name for name in dataset.column_names if _is_label(first[name], dataset.features[name])]
    classes = {name: getattr(dataset.features[name], "int2str", None) for name in labels}
    for i in range(len(dataset)):
        item = dataset[i]
        x = item[column]
        named = {
            name: convert(item[name]) if (convert := classes[name]) and item[name] is not None else item[name]
            for name in labels
        }
        yield (np.asarray(x, np.float32) if isinstance(x, list) else x), named or None


def _is_example(value: Any) -> bool:
    return hasattr(value, "getbands") or hasattr(value, "__array__") or (isinstance(value, list) and len(value) > 0)


def _is_label(value: Any, feature: Any) -> bool:
    """Return whether a column contains labels. `value` is its first entry, and None if this label is missing."""
    return isinstance(value, int | float | str) or (value is None and type(feature).__name__ in ("Value", "ClassLabel"))


def _plain_column(column: Any) -> Any:
    """Return a column of a data frame as an array of numbers or words. A missing value becomes None."""
    values = column.astype(object)
    return np.array([None if value != value else value for value in values], dtype=object)


def _columns(where: object, text: str | Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the names in a comma-separated list, or raise a UserError if one of them is unknown."""
    chosen = text.split(",") if isinstance(text, str) else list(text)
    chosen = [name if name in known else name.strip() for name in chosen]
    for name in chosen:
        if name not in known:
            raise UserError(unknown_name_message(f"column of {where}", name, known))
    return chosen


def _missing(file: Path, package: str, extra: str) -> UserError:
    return UserError(
        f"Reading {file} needs the package {package}, which is not installed. Install it with: "
        f'pip install "unbraid[{extra}]"'
    )
