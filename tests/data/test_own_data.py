"""Users' own data: from datasets, found again by name, under the laws of data, trained, scored and ranked."""

from __future__ import annotations

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

from support.own import CELLS, ONE, fill, pixels, rows, vectors, write_csv
from unbraid import methods
from unbraid.data.own.load import OwnData, from_arrays, from_dataset, from_file, from_folder, load_own
from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.pictures.traversal import sweep
from unbraid.scoring.score import Protocol, score
from unbraid.scoring.selection import rank
from unbraid.training.train import train


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


class Faces(Dataset[Any]):
    """Examples as a dataset of torch gives them."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


class Stream(IterableDataset[Any]):
    """Examples without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(torch.from_numpy(ONE) / 255, [7, 5], strict=True))


def test_a_tensor_dataset_is_data() -> None:
    data = from_dataset(TensorDataset(torch.from_numpy(pixels(24, 3, 8, 8)) / 255, torch.tensor(CELLS)))
    assert data.gridded
    assert data.images(slice(None)).tolist() == pixels(24, 3, 8, 8).tolist()
    assert rows(data) == CELLS.tolist()
    assert data.names == ("factor0", "factor1", "factor2")


def test_pictures_with_named_labels_are_data() -> None:
    items = [(Image.fromarray(pixels(8, 8, 3, key=i)), {"x": i % 2, "shape": np.int64(i)}) for i in range(3)]
    seen: list[float] = []
    data = from_dataset(Faces([*items, (items[0][0].convert("RGBA"), {"shape": 9, "x": 1})]), progress=seen.append)
    assert data.names == ("x", "shape")
    assert rows(data) == [[0, 0], [1, 1], [0, 2], [1, 9]]
    assert data.images([2])[0].permute(1, 2, 0).tolist() == pixels(8, 8, 3, key=2).tolist()
    assert seen == sorted(seen)
    assert seen[-1] == 1
    assert data.name == "dataset"


UNLABELLED: dict[str, list[Any]] = {
    "tensors": [torch.from_numpy(image) for image in ONE],
    "arrays": list(ONE),
    "grey pictures": [Image.fromarray(image) for image in ONE],
    "tuples of one": [(image,) for image in ONE],
    "no label": [(image, None) for image in ONE],
    "halves": [(torch.from_numpy(image) / 255).half().float() for image in ONE],
}


@pytest.mark.parametrize("kind", UNLABELLED)
def test_examples_without_labels_are_data(kind: str) -> None:
    data = from_dataset(UNLABELLED[kind], name="mine")
    assert data.values == {}
    assert data.name == "mine"
    assert data.images(slice(None))[:, 0].tolist() == ONE.tolist()


def test_streams_and_vectors_are_data() -> None:
    data = from_dataset(Stream())
    assert rows(data) == [[5], [7]]
    assert data.images(slice(None))[:, 0].tolist() == ONE[::-1].tolist()
    walk = from_dataset([(torch.tensor([0.5, i]), [i, 1 - i]) for i in range(2)], names=["u", "v"])
    assert walk.shape == (2,)
    assert walk.values == {"u": [0, 1], "v": [0, 1]}
    assert walk.batch(torch.tensor([1])).tolist() == [[0.5, 1.0]]


BAD_DATASETS: dict[str, tuple[list[Any], type[Exception], str]] = {
    "empty": ([], ValueError, "at least one example. Got none"),
    "three things": ([(ONE[0], 1, 2)], ValueError, "Got 3 things at 0 instead. Wrap the dataset."),
    "a word": (["a.png"], TypeError, "a Pillow image, an array or a tensor. Got str at 0 instead."),
    "other shape": (
        [ONE[0], ONE[1, :4]],
        ValueError,
        "form of the first, uint8 (8, 8). Got uint8 (4, 8) at 1 instead.",
    ),
    "normalised": ([ONE[0] / 255, ONE[1] / 255 - 1], ValueError, "Pixels of example 1 must lie in 0..1"),
    "word label": ([(ONE[0], "cat")], TypeError, "whole number, or several. Got"),
    "float label": ([(ONE[0], 0.5)], TypeError, "Got np.float64(0.5) at 0 instead."),
    "other labels": ([(ONE[0], [1, 2]), (ONE[1], 1)], ValueError, "labels of the first, ['0', '1']. Got ['0'] at 1"),
    "label missing": ([(ONE[0], 1), (ONE[1], None)], ValueError, "Got [] at 1 instead."),
}


@pytest.mark.parametrize("case", BAD_DATASETS)
def test_datasets_that_do_not_fit_are_refused(case: str) -> None:
    items, kind, message = BAD_DATASETS[case]
    with pytest.raises(kind) as error:
        from_dataset(Faces(items))
    assert message in str(error.value)


def same(a: OwnData, b: OwnData) -> bool:
    alike = (a.name, a.names, a.sizes, a.values, a.fingerprint) == (b.name, b.names, b.sizes, b.values, b.fingerprint)
    return alike and torch.equal(a.table, b.table) and torch.equal(a.factors(slice(None)), b.factors(slice(None)))


def test_what_was_loaded_is_found_again_by_its_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder, "a.png", "b.png", "c.png")
    labels = write_csv(tmp_path, "file,v\nb.png,1\na.png,3\nc.png,2\n", "my labels&.csv")
    np.savez(tmp_path / "a.npz", u=pixels(2, 3, 8, 3), v=[[1, 2], [3, 4]])
    np.save(tmp_path / "b.npy", ONE)
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
        assert same(load_own(data.name), data)


def test_a_question_mark_may_be_part_of_a_name(folder: Path) -> None:
    fill(folder / "what?size=3", "a.png")
    for size in (64, 16):
        data = from_folder(folder / "what?size=3", size=size)
        assert data.shape == (1, size, size)
        assert same(load_own(data.name), data)


BAD_PATHS = {
    "nowhere": "nowhere must be a folder of images, or a file of arrays (.npy or .npz). Got nothing there instead.",
    "": "Got nothing there instead.",
    "photos/notes.txt": "Got a file notes.txt instead.",
    "photos?sizes=3": "Unknown option of own data 'sizes'. Did you mean 'size'? Choose from: channels, labels, size.",
    "photos?size=big": "The 'size' of photos must be a whole number. Got 'big' instead.",
    "photos?big": "must be options such as size=32&channels=1. Got 'big' instead.",
    "photos?size=0": "must be 1 to 1024 pixels. Got 0 instead.",
    "b.npy?size=32": "Choose from: factors, images, layout, names.",
}


@pytest.mark.parametrize("where", BAD_PATHS)
def test_paths_that_are_no_data_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    fill(folder, "a.png")
    (folder / "notes.txt").write_text("hello")
    np.save(tmp_path / "b.npy", ONE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        load_own(where)
    assert BAD_PATHS[where] in str(error.value)


KINDS: dict[str, Callable[[], OwnData]] = {
    "grid of images": lambda: from_arrays(pixels(24, 3, 8, 8), CELLS),
    "grid of vectors": lambda: from_arrays(vectors(24), CELLS),
    "labelled": lambda: from_arrays(pixels(20, 8, 8), CELLS[:20]),
    "without labels": lambda: from_arrays(vectors(24)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_own_data_obey_the_laws_of_data(kind: str) -> None:
    data = KINDS[kind]()
    keys = torch.tensor([3, 4])
    drawn = vmap(lambda key: data.draw(Noise(key), 50))(keys)
    assert torch.equal(drawn[1], data.draw(Noise(keys[1]), 50))
    assert torch.equal(vmap(data.batch)(drawn), torch.stack([data.batch(index) for index in drawn]))
    many = torch.bincount(data.draw(Noise(keys[0]), 240 * len(data)), minlength=len(data))
    assert (many - 240).abs().max() < 6 * 240**0.5
    elsewhere = data.to("meta")
    assert isinstance(elsewhere, OwnData)
    assert elsewhere.values == data.values
    assert elsewhere.batch(elsewhere.draw(Noise(torch.tensor(0, device="meta")), 6)).shape == (6, *data.shape)


def trained(data: OwnData, seeds: int = 1, **options: Any) -> list[Any]:
    return train(methods.BetaVAE(), data, seeds=range(seeds), steps=2, batch=4, latents=3, quiet=True, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_own_data_train_and_score(kind: str) -> None:
    data = KINDS[kind]()
    (run,) = trained(data, net="mlp", likelihood="gaussian")
    assert run.encode(data.images(slice(None))).shape == (len(data), 3)
    names = ["unsupervised", "mig"] if data.names else ["unsupervised"]
    (row,) = score(run, names, data=data, protocol=Protocol(train=100, test=50), quiet=True)
    assert np.isfinite(row["unsupervised.gaussian_total_correlation"])
    assert not data.names or 0 <= row["mig.discrete_mig"] <= 1


def test_a_folder_without_labels_trains_ranks_and_is_traversed(folder: Path, tmp_path: Path) -> None:
    fill(folder, *(f"{i}.png" for i in range(6)), size=40)
    data = from_folder(folder, size=32)
    runs = trained(data, seeds=2, out=tmp_path / "runs")
    assert {run.spec.data for run in runs} == {data.name}
    ranked = rank(runs, data=data, examples=50, quiet=True)
    assert [row["data"] for row in ranked] == [data.name] * 2
    moved: Tensor = sweep(runs[0], data, 4, torch.linspace(-2, 2, 5)).images
    assert moved.shape == (3, 5, 1, 32, 32)
    assert moved.isfinite().all()


def test_images_of_an_odd_size_say_what_trains_on_them() -> None:
    with pytest.raises(ValueError, match=r"16, 32, 64, 128, 256 pixels square.*choose net 'mlp'"):
        trained(from_arrays(pixels(6, 28, 28)))
    trained(from_arrays(pixels(6, 28, 28)), net="mlp")
