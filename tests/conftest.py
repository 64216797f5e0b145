"""Fixtures shared by all tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from support.chromium import chromium, page
from unbraid import data as datasets
from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import ByteImages

__all__ = ["chromium", "page"]  # fixtures of browser tests

if not torch.cuda.is_available():  # Triton reads it when it is first imported; with a GPU kernels compile for real
    os.environ.setdefault("TRITON_INTERPRET", "1")

hypothesis.settings.register_profile("unbraid", deadline=None, max_examples=30, derandomize=True)
hypothesis.settings.load_profile("unbraid")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference material kept beside the repository: golden values and real images."""
    folder = Path(os.environ.get("UNBRAID_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"reference material is not at {folder.name}/ beside the repository (set UNBRAID_SHARED)")
    return folder


@pytest.fixture(scope="session")
def sprites() -> FactorData:
    return datasets.load("sprites")


@pytest.fixture(scope="session")
def toy() -> FactorData:
    return datasets.load("toy")


@pytest.fixture(scope="session")
def glyphs() -> FactorData:
    """Small bars of 3 lengths at 4 x 4 places in images of 12 x 12."""
    images = torch.zeros(3, 4, 4, 1, 12, 12, dtype=torch.uint8)
    for length, x, y in itertools.product(range(3), range(4), range(4)):
        images[length, x, y, 0, 2 + 2 * y : 4 + 2 * y, 1 + x : 5 + x + 2 * length] = 255
    return ByteImages("glyphs", ("length", "x", "y"), (3, 4, 4), (1, 12, 12), images.flatten(0, 2))


@pytest.fixture
def ground(request: pytest.FixtureRequest, toy: FactorData, glyphs: FactorData) -> FactorData:
    """The smallest data that the method called `name` takes."""
    from families import FAMILY

    return glyphs if FAMILY[request.node.callspec.params["name"]].images else toy


@pytest.fixture(autouse=True)
def _own_generator() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # as OMP_NUM_THREADS says; compiled metrics in the same process may have raised it


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Memory that a kernel's launcher asks for holds NaN and lies between guards."""
    from support.guarded import guarded, hurried

    with hurried(), guarded():
        yield


@pytest.fixture
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles that spare the interpreter most of its time."""
    from support.fused_stacks import enlarge_tiles

    enlarge_tiles(monkeypatch)


@pytest.fixture
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which tiles float32 takes, in tests that `layers.tiled` parametrises."""
    from unbraid.accel.kernels import tuned

    if request.param == "bfloat16":
        monkeypatch.setattr(tuned, "FLOAT32", tuned.BFLOAT16)
    return str(request.param)
