"""Users' own data from torch datasets and paths: loading by name, properties of data, training, scoring, ranking."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.func import vmap
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from support.own import GRID_FACTORS, TWO_IMAGES, label_rows, random_pixels, random_vectors, save_images, write_csv
from unbraid import methods
from unbraid.data import from_arrays, from_dataset, from_file, from_folder, load
from unbraid.data.loading import convert_data
from unbraid.data.own.arrays import OwnData
from unbraid.data.own.images import check_image_options
from unbraid.data.own.label_table import LabelKinds
from unbraid.data.own.load import load_own
from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.pictures.traversal import decode_traversal
from unbraid.scoring.score import Protocol, score
from unbraid.scoring.selection import select
from unbraid.training.train import train


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


class ListDataset(Dataset[Any]):
    """A torch dataset over a list of examples."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


class StreamDataset(IterableDataset[Any]):
    """A torch dataset without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(torch.from_numpy(TWO_IMAGES) / 255, [7, 5], strict=True))


def test_tensor_dataset_is_read() -> None:
    data = from_dataset(TensorDataset(torch.from_numpy(random_pixels(24, 3, 8, 8)) / 255, torch.tensor(GRID_FACTORS)))
    assert data.gridded
    assert data.images(slice(None)).tolist() == random_pixels(24, 3, 8, 8).tolist()
    assert label_rows(data) == GRID_FACTORS.tolist()
    assert data.names == ("factor0", "factor1", "factor2")


def test_pillow_images_with_named_labels_are_read() -> None:
    items = [(Image.fromarray(random_pixels(8, 8, 3, key=i)), {"x": i % 2, "shape": np.int64(i)}) for i in range(3)]
    fractions: list[float] = []
    data = from_dataset(
        ListDataset([*items, (items[0][0].convert("RGBA"), {"shape": 9, "x": 1})]), progress=fractions.append
    )
    assert data.names == ("x", "shape")
    assert label_rows(data) == [[0, 0], [1, 1], [0, 2], [1, 9]]
    assert data.images([2])[0].permute(1, 2, 0).tolist() == random_pixels(8, 8, 3, key=2).tolist()
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert data.name == "dataset"


UNLABELLED: dict[str, list[Any]] = {
    "tensors": [torch.from_numpy(image) for image in TWO_IMAGES],
    "arrays": list(TWO_IMAGES),
    "grey pictures": [Image.fromarray(image) for image in TWO_IMAGES],
    "tuples of one": [(image,) for image in TWO_IMAGES],
    "no label": [(image, None) for image in TWO_IMAGES],
    "halves": [(torch.from_numpy(image) / 255).half().float() for image in TWO_IMAGES],
}


@pytest.mark.parametrize("kind", UNLABELLED)
def test_examples_without_labels_are_read(kind: str) -> None:
    data = from_dataset(UNLABELLED[kind], name="mine")
    assert data.values == {}
    assert data.name == "mine"
    assert data.images(slice(None))[:, 0].tolist() == TWO_IMAGES.tolist()


def test_iterable_datasets_and_vectors_are_read() -> None:
    data = from_dataset(StreamDataset())
    assert label_rows(data) == [[5], [7]]
    assert data.images(slice(None))[:, 0].tolist() == TWO_IMAGES[::-1].tolist()
    walk = from_dataset([(torch.tensor([0.5, i]), [i, 1 - i]) for i in range(2)], names=["u", "v"])
    assert walk.shape == (2,)
    assert walk.values == {"u": [0, 1], "v": [0, 1]}
    assert walk.batch(torch.tensor([1])).tolist() == [[0.5, 1.0]]


def test_labels_of_a_dataset_may_be_words() -> None:
    named = from_dataset(
        [(TWO_IMAGES[i], {"pet": pet, "age": age}) for i, (pet, age) in enumerate([("dog", 3), ("cat", 4)])]
    )
    assert named.values == {"pet": ["cat", "dog"], "age": [3, 4]}
    assert from_dataset([(TWO_IMAGES[i], word) for i, word in enumerate(["dog", "cat"])]).values == {
        "label": ["cat", "dog"]
    }


BAD_DATASETS: dict[str, tuple[list[Any], type[Exception], str]] = {
    "empty": ([], ValueError, "at least one example. Got none"),
    "three things": ([(TWO_IMAGES[0], 1, 2)], ValueError, "Got 3 values at index 0 instead. Wrap the dataset"),
    "a word": (["a.png"], ValueError, "a Pillow image, an array or a tensor. Got str at index 0 instead."),
    "other shape": (
        [TWO_IMAGES[0], TWO_IMAGES[1, :4]],
        ValueError,
        "type and shape of the first, uint8 (8, 8). Got uint8 (4, 8) at index 1 instead.",
    ),
    "normalised": (
        [TWO_IMAGES[0] / 255, TWO_IMAGES[1] / 255 - 1],
        ValueError,
        "Pixels of example 1 of type float64 must be in 0..1",
    ),
    "label of another type": ([(TWO_IMAGES[0], object())], ValueError, "must be a number or a word, or several of"),
    "other labels": (
        [(TWO_IMAGES[0], [1, 2]), (TWO_IMAGES[1], 1)],
        ValueError,
        "same labels as the first, ['0', '1']. Got ['0'] at index 1",
    ),
    "label missing": ([(TWO_IMAGES[0], 1), (TWO_IMAGES[1], None)], ValueError, "Got [] at index 1 instead."),
}


@pytest.mark.parametrize("case", BAD_DATASETS)
def test_invalid_datasets_are_rejected(case: str) -> None:
    items, kind, message = BAD_DATASETS[case]
    with pytest.raises(kind) as error:
        from_dataset(ListDataset(items))
    assert message in str(error.value)


def equal_data(a: OwnData, b: OwnData) -> bool:
    alike = (a.name, a.names, a.sizes, a.values, a.fingerprint) == (b.name, b.names, b.sizes, b.values, b.fingerprint)
    return alike and torch.equal(a.table, b.table) and torch.equal(a.factors(slice(None)), b.factors(slice(None)))


def test_own_data_can_be_loaded_again_by_name(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_images(folder, "a.png", "b.png", "c.png")
    labels = write_csv(tmp_path, "file,v\nb.png,1\na.png,3\nc.png,2\n", "my labels&.csv")
    np.savez(tmp_path / "a.npz", u=random_pixels(2, 3, 8, 3), v=[[1, 2], [3, 4]])
    np.save(tmp_path / "b.npy", TWO_IMAGES)
    np.save(tmp_path / "c.npy", np.arange(2))
    monkeypatch.chdir(tmp_path)
    loaded = [
        from_folder("photos"),
        from_folder("photos", size=32, channels=3, labels="none"),
        from_folder("photos", labels=labels.name),
        from_file("a.npz", images="u", factors="v", names=["p", "q & r"], layout="hwc"),
        from_file("b.npy", factors="c.npy"),
        load_own("photos?size=16"),
        load_own("./b.npy"),
    ]
    assert len({data.name for data in loaded}) == len(loaded)
    assert loaded[5].shape == (1, 16, 16)
    monkeypatch.chdir(folder)
    for data in loaded:
        assert equal_data(load_own(data.name), data)


def test_question_mark_may_be_part_of_a_path(folder: Path) -> None:
    save_images(folder / "what?size=3", "a.png")
    for size in (64, 16):
        data = from_folder(folder / "what?size=3", size=size)
        assert data.shape == (1, size, size)
        assert equal_data(load_own(data.name), data)


BAD_PATHS = {
    "nowhere": "nowhere must be a folder of images, or a file of arrays (.npy, .npz, .parquet, .h5ad). Got a path",
    "": "Got a path that does not exist instead.",
    "photos/notes.txt": "Got the file notes.txt instead.",
    "photos?sizes=3": "Unknown option of own data 'sizes'. Did you mean 'size'? Choose from: bins, channels, ",
    "photos?size=big": "The 'size' of photos must be a whole number. Got 'big' instead.",
    "photos?big": "must be options such as size=32&channels=1. Got 'big' instead.",
    "photos?size=0": "must be 1 to 1024 pixels. Got 0 instead.",
    "b.npy?size=32": "Choose from: bins, continuous, discrete, factors, images, layout, names.",
}


@pytest.mark.parametrize("where", BAD_PATHS)
def test_paths_without_data_are_rejected(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    save_images(folder, "a.png")
    (folder / "notes.txt").write_text("hello")
    np.save(tmp_path / "b.npy", TWO_IMAGES)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        load_own(where)
    assert BAD_PATHS[where] in str(error.value)


KINDS: dict[str, Callable[[], OwnData]] = {
    "grid of images": lambda: from_arrays(random_pixels(24, 3, 8, 8), GRID_FACTORS),
    "grid of vectors": lambda: from_arrays(random_vectors(24), GRID_FACTORS),
    "labelled": lambda: from_arrays(random_pixels(20, 8, 8), GRID_FACTORS[:20]),
    "without labels": lambda: from_arrays(random_vectors(24)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_own_data_have_the_properties_of_data(kind: str) -> None:
    data = KINDS[kind]()
    keys = torch.tensor([3, 4])
    drawn = vmap(lambda key: data.draw(Noise(key), 50))(keys)
    assert torch.equal(drawn[1], data.draw(Noise(keys[1]), 50))
    assert torch.equal(vmap(data.batch)(drawn), torch.stack([data.batch(index) for index in drawn]))
    many = torch.bincount(data.draw(Noise(keys[0]), 240 * len(data)), minlength=len(data))
    assert (many - 240).abs().max() < 6 * 240**0.5
    on_meta = data.to("meta")
    assert isinstance(on_meta, OwnData)
    assert on_meta.values == data.values
    assert on_meta.batch(on_meta.draw(Noise(torch.tensor(0, device="meta")), 6)).shape == (6, *data.shape)


def train_runs(data: OwnData, seeds: int = 1, **options: Any) -> list[Any]:
    return train(methods.BetaVAE(), data, seeds=range(seeds), steps=2, batch=4, latents=3, quiet=True, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_own_data_can_be_trained_on_and_scored(kind: str) -> None:
    data = KINDS[kind]()
    (run,) = train_runs(data, net="mlp", likelihood="gaussian")
    assert run.encode(data.images(slice(None))).shape == (len(data), 3)
    names = ["unsupervised", "mig"] if data.names else ["unsupervised"]
    (row,) = score(run, names, data=data, protocol=Protocol(train=100, test=50), quiet=True)
    assert np.isfinite(row["unsupervised.gaussian_total_correlation"])
    assert not data.names or 0 <= row["mig.discrete_mig"] <= 1


def test_folder_without_labels_is_trained_ranked_and_traversed(folder: Path, tmp_path: Path) -> None:
    save_images(folder, *(f"{i}.png" for i in range(6)), size=40)
    data = from_folder(folder, size=32)
    runs = train_runs(data, seeds=2, out=tmp_path / "runs")
    assert {run.spec.data for run in runs} == {data.name}
    ranked = select(runs, data=data, examples=50, quiet=True)
    assert [row["data"] for row in ranked] == [data.name] * 2
    moved: Tensor = decode_traversal(runs[0], data, 4, torch.linspace(-2, 2, 5)).decoded
    assert moved.shape == (3, 5, 1, 32, 32)
    assert moved.isfinite().all()


def test_unsupported_image_size_names_the_possible_nets() -> None:
    with pytest.raises(ValueError, match=r"16, 32, 64, 128, 256 pixels.*choose net 'mlp'"):
        train_runs(from_arrays(random_pixels(6, 28, 28)))
    train_runs(from_arrays(random_pixels(6, 28, 28)), net="mlp")


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (8, 8, 3)])
def test_a_list_of_two_images_is_not_a_pair_of_examples_and_factors(kind: Any, shape: tuple[int, ...]) -> None:
    images = random_pixels(2, *shape)
    data = convert_data([kind(image) for image in images])
    assert (len(data), data.names) == (2, ())
    assert data.images(slice(None)).tolist() == from_arrays(images).images(slice(None)).tolist()


def test_lists_of_pillow_images_have_the_colours_of_the_images() -> None:
    colours = Image.fromarray(random_pixels(8, 8, 3)).quantize(7)
    data = convert_data([colours, colours.rotate(90), Image.fromarray(random_pixels(8, 8))])
    assert data.shape == (3, 8, 8)
    assert data.images([0])[0].permute(1, 2, 0).tolist() == np.asarray(colours.convert("RGB")).tolist()


@pytest.mark.parametrize("dark", [TWO_IMAGES / 255 / 255, TWO_IMAGES % 16])
def test_almost_black_images_are_announced(dark: np.ndarray[Any, Any], folder: Path) -> None:
    with pytest.warns(RuntimeWarning, match=f"brightest pixel of arrays is {1 if dark.dtype == float else 15} of 255"):
        from_arrays(dark)
    Image.fromarray((np.arange(64).reshape(8, 8) * 65).astype(np.uint16)).save(folder / "a.png")  # 12 bits of 16
    with pytest.warns(RuntimeWarning, match="is 16 of 255, so the images are almost black"):
        from_folder(folder, size=8)


def test_pairs_in_time_need_rows_in_the_order_of_time(folder: Path) -> None:
    method, images = methods.SlowVAE(pairs="consecutive"), random_pixels(24, 16, 16)
    assert from_arrays(images).successive
    assert from_arrays(images, GRID_FACTORS[np.lexsort(GRID_FACTORS.T[::-1])]).successive
    shuffled = from_arrays(images, GRID_FACTORS[np.lexsort(GRID_FACTORS.T)])
    with pytest.raises(UserError, match="labels that form a full grid"):
        train(method, data=shuffled, steps=2, batch=4, latents=2, quiet=True)
    save_images(folder, *(f"clip/t=0.{i:02}.png" for i in range(4)), "clip-2/9.png", "clip-2/10.png")
    with pytest.raises(UserError, match="numbers in file names with leading zeros"):
        train(method, data=from_folder(folder, size=16, labels="none"), steps=2, batch=4, latents=2, quiet=True)
    (folder / "clip-2/9.png").rename(folder / "clip-2/09.png")
    assert from_folder(folder, size=16, labels="none").successive
    assert not from_folder(folder, size=16, labels=str(write_csv(folder, _grid_of_six(folder)))).successive


def _grid_of_six(folder: Path) -> str:
    """Labels of six images that form a grid in another order than the files."""
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.png"))
    return "file,a,b\n" + "".join(f"{file},{i % 2},{i // 2}\n" for i, file in enumerate(files))


@pytest.mark.parametrize("options", ["noise=0.1&noise=0.2", "layout=hw&layout=hw", "bins=2&noise=0.1&bins=3"])
def test_options_may_occur_only_once(options: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", TWO_IMAGES)
    with pytest.raises(UserError, match=r"only once\. Got .*Remove one"):
        load(f"{tmp_path}/a.npy?{options}")
    with pytest.raises(UserError, match=r"only once\. Got 'subset' several times in toy"):
        load("toy?subset=10&seed=1&subset=20")


def test_a_dictionary_is_not_a_dataset() -> None:
    with pytest.raises(UserError, match="Got a dict instead"):
        from_dataset({"images": TWO_IMAGES})


@pytest.mark.parametrize("value", [True, 16.0, "16"])
def test_sizes_and_numbers_of_bins_are_integers(value: Any) -> None:
    check = inspect.unwrap(check_image_options)  # without the checks of types that are active in tests
    for size, channels in ((value, None), (16, value)):
        with pytest.raises(UserError, match="of images must be an integer"):
            check(size, channels)
    kinds = object.__new__(LabelKinds)
    object.__setattr__(kinds, "bins", value)
    with pytest.raises(UserError, match="'bins' must be an integer and at least 2"):
        inspect.unwrap(LabelKinds.__post_init__)(kinds)


def test_colours_after_a_grey_image_are_announced() -> None:
    with pytest.warns(RuntimeWarning, match="first image of the dataset is grey"):
        assert from_dataset([Image.new("L", (8, 8), 99), Image.new("RGB", (8, 8), "red")]).shape == (1, 8, 8)


@pytest.mark.parametrize("second", [5, "a"])
def test_names_of_labels_may_be_digits(second: Any) -> None:
    items = [(TWO_IMAGES[0], {"7": 1, "2": second}), (TWO_IMAGES[1], {"7": 2, "2": 4 if second == 5 else "b"})]
    assert from_dataset(items).names == ("7", "2")
