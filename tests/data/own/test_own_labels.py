"""Labels of image files are read from csv files, folders and names; the first invalid one is named in the error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.own import label_rows, random_pixels, save_images, write_csv
from unbraid.data import from_folder
from unbraid.errors import UserError
from unbraid.label_kinds import LabelWarning


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


GRID = [f"{shape}-{x}.png" for shape in ("square", "heart") for x in (2, 10, 1)]


def table(mark: str = ",") -> str:
    lines = ["file,shape,x", *(f"{name},{name.removesuffix('.png').replace('-', ',')}" for name in GRID)]
    return "\n".join(lines).replace(",", mark) + "\n"


FORMS: dict[str, Callable[[Path], str | None]] = {
    "labels.csv": lambda folder: write_csv(folder, table()) and None,
    "factors.csv": lambda folder: write_csv(folder, table(), "factors.csv") and None,
    "semicolons, after a byte order mark": lambda folder: write_csv(folder, "\ufeff" + table(";")) and None,
    "tabs and Windows line ends": lambda folder: write_csv(folder, table("\t").replace("\n", "\r\n")) and None,
    "empty lines and spaces": lambda folder: write_csv(folder, table(" , ").replace("\n", "\n\n")) and None,
    "./ in front": lambda folder: write_csv(folder, table().replace("\n", "\n./").removesuffix("./")) and None,
    "csv in another folder": lambda folder: str(write_csv(folder.parent, table(), "mine.csv")),
}


@pytest.mark.parametrize("form", FORMS)
def test_csv_labels_files_and_a_full_grid_is_sorted(folder: Path, form: str) -> None:
    save_images(folder, *GRID)
    data = from_folder(folder, size=8, labels=FORMS[form](folder))
    assert data.gridded
    assert (data.names, data.sizes) == (("shape", "x"), (2, 3))
    assert data.values == {"shape": ["heart", "square"], "x": [1, 2, 10]}
    assert data.categorical == ("shape",)
    assert label_rows(data) == [[shape, x] for shape in ("heart", "square") for x in (1, 2, 10)]
    given = {name: random_pixels(8, 8, key=1000 * i).tolist() for i, name in enumerate(GRID)}
    assert data.images(slice(None))[:, 0].tolist() == [given[f"{shape}-{x}.png"] for shape, x in label_rows(data)]
    assert data.index([[1, 2]]).tolist() == [5]


def test_incomplete_grid_keeps_the_order_of_the_files(folder: Path) -> None:
    save_images(folder, *GRID[:-1])
    write_csv(folder, "\n".join(table().splitlines()[:-1]))
    data = from_folder(folder, size=8)
    assert not data.gridded
    assert label_rows(data) == [["heart", 10], ["heart", 2], ["square", 1], ["square", 10], ["square", 2]]
    with pytest.raises(ValueError, match="do not form a full grid"):
        data.index([[0, 0]])


def test_csv_may_omit_folders_if_names_are_unique(folder: Path) -> None:
    save_images(folder, "one/a.png", "two/b.png", "two/c.png", "one/c.png")
    write_csv(folder, "file,v\na.png,0.5\nb.png,-1\ntwo\\c.png,1e1\none/c.png,0.5\n")
    data = from_folder(folder, size=8)
    assert label_rows(data) == [[0.5], [0.5], [-1.0], [10.0]]
    assert data.values == {"v": [-1.0, 0.5, 10.0]}
    write_csv(folder, "file,v\na.png,5\nb.png,-1\nc.png,1\none/c.png,5\n")
    with pytest.raises(UserError, match=r"Got 1 row\(s\) that do not, such as c\.png"):
        from_folder(folder, size=8)


def test_values_are_distinguished_exactly_and_words_stay_words(folder: Path) -> None:
    save_images(folder, "a.png", "b.png", "c.png", "d.png")
    big = 12345678901234567890
    write_csv(folder, f"file,id,word,mixed\na.png,{big},inf,1\nb.png,{big + 1},x,x\nc.png,1,1e999,02\nd.png,01,x,2\n")
    with pytest.warns(LabelWarning, match="mixed: numbers, and words such as 'x'"):
        data = from_folder(folder, size=8)
    assert data.values == {"id": [1, big, big + 1], "word": ["1e999", "inf", "x"], "mixed": ["02", "1", "2", "x"]}
    assert data.categorical == ("word", "mixed")


def test_factor_with_one_value_is_left_out(folder: Path) -> None:
    save_images(folder, "a.png", "b.png")
    write_csv(folder, "file,camera,v\na.png,x,1\nb.png,x,2\n")
    assert from_folder(folder, size=8).values == {"v": [1, 2]}


FOLDERS: dict[str, tuple[list[str], dict[str, list[Any]]]] = {
    "one level": (["cat/1.png", "cat/2.png", "dog/1.png"], {"folder": ["cat", "dog"]}),
    "numbers": (["10/a.png", "9/a.png", "9/b.png"], {"folder": [9, 10]}),
    "two levels": (["a/1/x.png", "b/1/x.png", "b/2/x.png"], {"folder1": ["a", "b"], "folder2": [1, 2]}),
    "one that varies": (["all/a/x.png", "all/b/x.png"], {"folder": ["a", "b"]}),
    "a single folder": (["all/a.png", "all/b.png"], {}),
    "different depths": (["a.png", "b/a.png"], {}),
}


@pytest.mark.filterwarnings("ignore:.*different depths:unbraid.label_kinds.LabelWarning")
@pytest.mark.parametrize("case", FOLDERS)
def test_folders_label_their_images(folder: Path, case: str) -> None:
    files, values = FOLDERS[case]
    save_images(folder, *files)
    assert from_folder(folder, size=8).values == values
    if values:
        assert from_folder(folder, size=8, labels="folders").values == values
    else:
        with pytest.raises(UserError, match="To use folders as labels"):
            from_folder(folder, size=8, labels="folders")


@pytest.mark.parametrize("mark", ["_", ",", ";", " "])
def test_file_names_label_their_images(folder: Path, mark: str) -> None:
    names = [f"img{mark}shape={s}{mark}x={x}.png" for s, x in (("b", 10), ("b", 2), ("a", -1.5))]
    save_images(folder, *names, f"x=2{mark}shape=a.png")
    data = from_folder(folder, size=8)
    assert data.values == {"shape": ["a", "b"], "x": [-1.5, 2.0, 10.0]}
    assert label_rows(data) == [["a", -1.5], ["b", 10.0], ["b", 2.0], ["a", 2.0]]


def test_labels_come_from_the_first_available_source(folder: Path) -> None:
    save_images(folder, "p/v=1.png", "q/v=2.png")
    assert from_folder(folder, size=8).values == {"folder": ["p", "q"]}
    assert from_folder(folder, size=8, labels="names").values == {"v": [1, 2]}
    write_csv(folder, "file,w\nv=1.png,5\nv=2.png,6\n")
    assert from_folder(folder, size=8).values == {"w": [5, 6]}
    assert from_folder(folder, size=8, labels="csv").values == {"w": [5, 6]}
    assert from_folder(folder, size=8, labels="folders").values == {"folder": ["p", "q"]}
    assert from_folder(folder, size=8, labels="none").values == {}


CSVS: dict[str, tuple[str, str]] = {
    "empty": ("", "must name the columns: the file, then each factor once. Got [] instead."),
    "no factor": ("file\na.png\n", "Got ['file'] instead."),
    "no header": ("a.png,1\nb.png,2\n", "must name the columns. Got the image a.png instead."),
    "twice the same factor": ("file,v,v\n", "each factor once. Got ['file', 'v', 'v'] instead."),
    "short row": ("file,v,w\na.png,1\n", "Line 2 of {0} must have a file and 2 values (v, w). Got ['a.png', '1']"),
    "file without a row": ("file,v\nb.png,1\n", "Got 1 of 2 images without a row instead, such as a.png."),
    "row without a file": ("file,v\na.png,1\nb.png,1\nz.png,2\ny.png,3\n", "Got 2 row(s) that do not, such as z.png."),
    "two rows": ("file,v\na.png,1\nb.png,1\na.png,2\n", "Got a second row for a.png in line 4."),
}


@pytest.mark.parametrize("case", CSVS)
def test_invalid_csv_is_rejected(folder: Path, case: str) -> None:
    save_images(folder, "a.png", "b.png")
    text, message = CSVS[case]
    path = write_csv(folder, text)
    with pytest.raises(UserError) as error:
        from_folder(folder, size=8)
    assert message.format(path) in str(error.value)


def test_unavailable_labels_are_rejected(folder: Path) -> None:
    save_images(folder, "a=1.png", "b.png")
    with pytest.raises(
        UserError, match=r"must have the form a=\.\.\..* Got 1 other name\(s\) instead, such as b\.png\. Rename"
    ):
        from_folder(folder, size=8)
    assert from_folder(folder, size=8, labels="none").values == {}
    with pytest.raises(UserError, match=r"'name'\. Did you mean 'names'\?"):
        from_folder(folder, labels="name")
    with pytest.raises(UserError, match=r"either labels\.csv or factors\.csv\. Got neither"):
        from_folder(folder, labels="csv")
    with pytest.raises(UserError, match=r"There is no csv file .*missing\.csv\. Check the path"):
        from_folder(folder, labels=folder / "missing.csv")
    write_csv(folder, "file,v\n", "inside.csv")
    with pytest.raises(UserError, match=r"There is no csv file .*inside\.csv\. Did you mean .*inside\.csv\?"):
        from_folder(folder, labels="elsewhere/inside.csv")
    (folder / "latin.csv").write_bytes("file,größe\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin\.csv must be a csv file in UTF-8"):
        from_folder(folder, labels=folder / "latin.csv")
    write_csv(folder, "file,v\n")
    write_csv(folder, "file,v\n", "factors.csv")
    with pytest.raises(UserError, match=r"Got both instead\. Pass labels"):
        from_folder(folder)
    (folder / "b.png").rename(folder / "a=1_a=2.png")
    with pytest.raises(UserError, match=r"each factor only once\. Got a=1_a=2\.png"):
        from_folder(folder, labels="names")


def test_requested_labels_in_names_must_exist(folder: Path) -> None:
    save_images(folder, "a.png")
    with pytest.raises(UserError, match="must have the form name=value"):
        from_folder(folder, labels="names")


def test_a_csv_file_may_be_named_relative_to_the_folder(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    save_images(folder, "a.png", "b.png")
    write_csv(folder, "file,v\na.png,1\nb.png,2\n", "mine.csv")
    write_csv(tmp_path, "file,w\na.png,1\nb.png,2\n", "mine.csv")
    monkeypatch.chdir(tmp_path)
    assert from_folder(folder, size=8, labels="mine.csv").names == ("v",)
    (folder / "mine.csv").unlink()
    assert from_folder(folder, size=8, labels="mine.csv").names == ("w",)


def test_images_at_different_depths_are_announced(folder: Path) -> None:
    save_images(folder, "cat/a.png", "dog/b.png", "overview.png")
    with pytest.warns(LabelWarning, match=r"depths, such as overview\.png and cat/a\.png, so folders are not used"):
        assert from_folder(folder, size=8).names == ()
    assert from_folder(folder, size=8, labels="none").names == ()
    for i, name in enumerate(["cat/a", "dog/b", "overview"]):
        (folder / f"{name}.png").rename(folder / f"{name}_k={i}.png")
    assert from_folder(folder, size=8).names == ("k",)


@pytest.mark.parametrize(
    ("cells", "message"),
    [(["1.5", "2.5", "?"], r"numbers, and words such as '\?' in 1 rows"), (["0,5", "1,5", "2,5"], "decimal point")],
)
def test_numbers_that_are_treated_as_words_are_announced(folder: Path, cells: list[str], message: str) -> None:
    save_images(folder, *(f"{i}.png" for i in range(3)))
    write_csv(folder, "file;v\n" + "".join(f"{i}.png;{cell}\n" for i, cell in enumerate(cells)))
    with pytest.warns(LabelWarning, match=message):
        assert from_folder(folder, size=8).values == {"v": cells}
    assert from_folder(folder, size=8, discrete="v").values == {"v": cells}
