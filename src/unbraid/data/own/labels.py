"""Read the labels of image files from a csv file, from the names of the folders, or from the names of the files."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from unbraid.data.own.label_table import NUMBER, Column, LabelKinds, Labels
from unbraid.errors import UserError, unknown_name_message
from unbraid.label_kinds import MISSING_WORDS, announce
from unbraid.runtime.files import expand_user

TABLES = ("labels.csv", "factors.csv")
SEPARATORS = ",;\t"  # separators of csv files, in the order in which they are searched for in the header
MAX_DIGITS = 300  # longer whole numbers do not fit into a float and are treated as words
INTEGER = re.compile(r"[+-]?\d+")
MISSING_NUMBERS = ("na", "n/a", "none", "null")  # cells that mean a missing label if all other cells are numbers
Columns: TypeAlias = dict[str, Column]
"""A dictionary from the name of each factor to its labels, one per file."""
PAIR = re.compile(r"([^=_,; ]+)=([^=_,; ]+)")


def read_labels(folder: Path, files: Sequence[str], labels: str | None, kinds: LabelKinds = LabelKinds()) -> Labels:
    """Read the labels of image files.

    Args:
        folder: Folder of the images.
        files: Paths of the images, relative to `folder`.
        labels: A key of `LABEL_SOURCES`, or the path of a csv file. None chooses the first source that exists; see
            `_default_labels`.
        kinds: Which factors are continuous.

    Returns:
        The labels of all files, in the order of `files`.

    Raises:
        UserError: If the source is unknown or does not match the files.
    """
    return Labels.from_columns(_read_columns(folder, files, labels), len(files), kinds)


def _read_columns(folder: Path, files: Sequence[str], labels: str | None) -> Columns:
    if labels is None:
        return _default_labels(folder, files)
    if labels in LABEL_SOURCES:
        return LABEL_SOURCES[labels](folder, files)
    if not labels.lower().endswith(".csv"):
        raise UserError(unknown_name_message("source of labels", labels, [*LABEL_SOURCES, "the path of a csv file"]))
    table = expand_user(labels)
    if not table.exists():
        inside = folder / table.name
        advice = f"Did you mean {inside}?" if inside.is_file() else "Check the path."
        raise UserError(f"There is no csv file {table}. {advice}")
    return _labels_from_table(table, files)


def _default_labels(folder: Path, files: Sequence[str]) -> Columns:
    """Return the labels from the first source that exists.

    The sources are tried in this order: a csv file, the names of the folders (if the images are in several folders),
    and file names such as x=1.png. If none of them exists, there are no labels.
    """
    if any((folder / table).is_file() for table in TABLES):
        return _labels_from_csv(folder, files)
    by_folder = _labels_by_folder(files)
    if by_folder:
        return by_folder
    if any(map(_values_in_name, files)):
        return _labels_from_names(folder, files)
    if by_folder is None:
        shallow, deep = _extreme_depths(files)
        announce(
            f"{folder}: images at different depths, such as {shallow} and {deep}, so folders are not used as labels. "
            "Move the images if the folders are classes. Otherwise, use the option labels=none to confirm."
        )
    return _no_labels(folder, files)


def _no_labels(folder: Path, files: Sequence[str]) -> Columns:
    return {}


def _labels_from_csv(folder: Path, files: Sequence[str]) -> Columns:
    found = [folder / table for table in TABLES if (folder / table).is_file()]
    if len(found) != 1:
        got = "both" if found else "neither"
        raise UserError(
            f"{folder} must contain either {' or '.join(TABLES)}. Got {got} instead. Pass labels='PATH.csv'."
        )
    return _labels_from_table(found[0], files)


def _labels_from_folders(folder: Path, files: Sequence[str]) -> Columns:
    found = _labels_by_folder(files)
    if found is None:
        shallow, deep = _extreme_depths(files)
        raise UserError(
            f"To use folders as labels, all images in {folder} must be at the same depth. Got {shallow} and {deep} "
            "instead. Move the images, or pass labels='none'."
        )
    if not found:
        raise UserError(
            f"To use folders as labels, {folder} must contain images in several folders. Got a single folder instead. "
            "Pass labels='none'."
        )
    return found


def _extreme_depths(files: Sequence[str]) -> tuple[str, str]:
    """Return a file in the fewest nested folders, and a file in the most."""
    return min(files, key=lambda file: file.count("/")), max(files, key=lambda file: file.count("/"))


def _labels_by_folder(files: Sequence[str]) -> Columns | None:
    """Return one factor for each level of the folder tree at which there are several folder names.

    Return None if the files are at different depths.
    """
    paths = [file.split("/")[:-1] for file in files]
    if len(set(map(len, paths))) != 1:
        return None
    levels = [column for column in zip(*paths, strict=True) if len(set(column)) > 1]
    names = ["folder"] if len(levels) == 1 else [f"folder{i + 1}" for i in range(len(levels))]
    columns = {name: parse_values(column) for name, column in zip(names, levels, strict=True)}
    return {name: column for name, column in columns.items() if len(set(column)) > 1}


def _labels_from_names(folder: Path, files: Sequence[str]) -> Columns:
    values = [_values_in_name(file) for file in files]
    names = next((list(pairs) for pairs in values if pairs), [])
    wrong = [i for i, pairs in enumerate(values) if set(pairs) != set(names) or not pairs]
    if wrong:
        example = " ".join(f"{name}=..." for name in names) or "name=value"
        raise UserError(
            f"All file names in {folder} must have the form {example}, separated by _ , ; or a space. Got "
            f"{len(wrong):,} other name(s) instead, such as {files[wrong[0]]}. Rename the files, or pass labels='none'."
        )
    return {name: parse_values([pairs[name] for pairs in values]) for name in names}


def _values_in_name(file: str) -> dict[str, str]:
    """Return the values in a name such as shape=2_x=13.png. Parts without an equals sign are ignored."""
    found = PAIR.findall(file.rpartition("/")[2].rpartition(".")[0])
    names = Counter(name for name, _ in found)
    if found and max(names.values()) > 1:
        raise UserError(f"A file name must contain each factor only once. Got {file} instead. Rename the file.")
    return dict(found)


LABEL_SOURCES: dict[str, Callable[[Path, Sequence[str]], Columns]] = {
    "csv": _labels_from_csv,
    "folders": _labels_from_folders,
    "names": _labels_from_names,
    "none": _no_labels,
}


def _labels_from_table(table: Path, files: Sequence[str]) -> Columns:
    """Read labels from a csv file with a header and one row per image.

    The first column contains the path of the image, or only its file name if no other image has the same name. The
    other columns contain one factor each.
    """
    rows = _csv_rows(table)
    header = [word.strip() for word in next(rows, (1, []))[1]]
    names = header[1:]
    if not names or len(set(names)) != len(names) or "" in names:
        raise UserError(
            f"The first row of {table} must name the columns: the file, then each factor once. Got {header} instead."
        )
    known = _files_by_name(files)
    if header[0] in known:
        raise UserError(
            f"The first row of {table} must name the columns. Got the image {header[0]} instead. Insert a row with the "
            "names of the columns."
        )
    found = _match_rows(table, rows, known, names)
    missing = [file for file in files if file not in found]
    if missing:
        raise UserError(
            f"Every image must have a row in {table}. Got {len(missing):,} of {len(files):,} images without a row "
            f"instead, such as {missing[0]}. Add the rows, move the images, or pass labels='none'."
        )
    return {name: parse_values([found[file][j] for file in files]) for j, name in enumerate(names)}


def _match_rows(
    table: Path, rows: Iterator[tuple[int, list[str]]], known: dict[str, str], names: list[str]
) -> dict[str, list[str]]:
    """Return the values in the row of each file, and raise a UserError for rows that do not match exactly one file."""
    found: dict[str, list[str]] = {}
    unmatched = []
    for line, (name, *values) in rows:
        if len(values) != len(names):
            raise UserError(
                f"Line {line} of {table} must have a file and {len(names)} values ({', '.join(names)}). "
                f"Got {[name, *values]} instead."
            )
        file = known.get(name.replace("\\", "/").removeprefix("./"))
        if file is None:
            unmatched.append(name)
        elif file in found:
            raise UserError(f"A file must have only one row in {table}. Got a second row for {file} in line {line}.")
        else:
            found[file] = values
    if unmatched:
        raise UserError(
            f"Every row of {table} must name an image in the folder. Got {len(unmatched):,} row(s) that do not, such "
            f"as {unmatched[0]}. Remove the rows or add the images."
        )
    return found


def _files_by_name(files: Sequence[str]) -> dict[str, str]:
    """Return a dictionary of the paths of files. Its keys are the paths, and also the file names that occur once."""
    names = Counter(file.rpartition("/")[2] for file in files)
    unique = {name: file for file in files if names[name := file.rpartition("/")[2]] == 1}
    return unique | {file: file for file in files}


def _csv_rows(table: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each non-empty row of a UTF-8 csv file."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=next((mark for mark in SEPARATORS if mark in head), ","))
            for row in reader:
                if any(row):
                    yield reader.line_num, [word.strip() for word in row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{table} must be a csv file in UTF-8. Reading it failed: {error}.") from error


def parse_values(words: Sequence[str]) -> Column:
    """Convert all words to integers if possible, or else to floats. If some are not numbers, all of them remain words.

    An empty word and "nan" become None, which is a missing label. If all other words are numbers, "NA", "n/a", "none"
    and "null" become None as well. Upper and lower case are treated alike.

    >>> parse_values(["1", "", "2"]), parse_values(["0.5", "NA"]), parse_values(["red", "none", "NaN"])
    ([1, None, 2], [0.5, None], ['red', 'none', None])
    """
    numbers = _parse_numbers([word for word in words if word.lower() not in MISSING_WORDS + MISSING_NUMBERS])
    if not numbers:
        return [None if word.lower() in MISSING_WORDS else word for word in words]
    remaining = iter(numbers)
    return [None if word.lower() in MISSING_WORDS + MISSING_NUMBERS else next(remaining) for word in words]


def _parse_numbers(words: Sequence[str]) -> Sequence[int] | Sequence[float] | None:
    """Return integers if all words are whole numbers, floats if all are numbers, and None otherwise."""
    if all(map(INTEGER.fullmatch, words)) and all(len(word) <= MAX_DIGITS for word in words):
        return list(map(int, words))
    if not all(map(NUMBER.fullmatch, words)):
        return None
    numbers = list(map(float, words))
    if not all(map(math.isfinite, numbers)):
        return None
    return [int(number) for number in numbers] if all(number.is_integer() for number in numbers) else numbers
