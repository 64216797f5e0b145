"""Fixtures shared by all tests."""

from __future__ import annotations

import copy
import itertools
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from support.chromium import chromium, page
from unbraid import data as datasets
from unbraid.accel.precision import matmul_precision
from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import ByteImages
from unbraid.scoring import tasks

__all__ = ["chromium", "page"]  # fixtures of browser tests

if not torch.cuda.is_available():  # Triton reads this when it is first imported; without a GPU it interprets kernels
    os.environ.setdefault("TRITON_INTERPRET", "1")

tasks.PARALLEL_SECONDS = math.inf  # every core runs tests already; the tests of worker processes change it

hypothesis.settings.register_profile("unbraid", deadline=None, max_examples=30, derandomize=True)
hypothesis.settings.load_profile("unbraid")


@pytest.fixture(autouse=True)
def _default_ctrl_c() -> Iterator[None]:
    """Handle Ctrl-C as in a foreground process, because shells start background jobs with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material beside the repository: golden values and real images."""
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
    """Images of 12 x 12 pixels with bars of 3 lengths at 4 x 4 positions."""
    images = torch.zeros(3, 4, 4, 1, 12, 12, dtype=torch.uint8)
    for length, x, y in itertools.product(range(3), range(4), range(4)):
        images[length, x, y, 0, 2 + 2 * y : 4 + 2 * y, 1 + x : 5 + x + 2 * length] = 255
    return ByteImages("glyphs", ("length", "x", "y"), (3, 4, 4), (1, 12, 12), images.flatten(0, 2))


@pytest.fixture(scope="session")
def cyclic_toy(toy: FactorData) -> FactorData:
    """The vectors of `toy`, whose first factor is declared to be cyclic."""
    changed = copy.copy(toy)
    changed.cyclic = {"a": 8}
    return changed


@pytest.fixture
def smallest_data(
    request: pytest.FixtureRequest, toy: FactorData, glyphs: FactorData, cyclic_toy: FactorData
) -> FactorData:
    """The smallest data that the method of the parameter `name` accepts."""
    from families import METHOD_FACTS

    facts = METHOD_FACTS[request.node.callspec.params["name"]]
    return glyphs if facts.images else cyclic_toy if facts.cyclic else toy


@pytest.fixture(autouse=True)
def _same_seed_and_threads() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # compiled metrics in the same process may have changed the number


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Fill memory that kernels allocate with NaN, and detect writes outside of it. Kernels multiply as with tf32."""
    from support.guarded import faster_interpreter, guarded_allocations

    with faster_interpreter(), guarded_allocations(), matmul_precision("tf32"):
        yield


@pytest.fixture
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use large tiles, which the interpreter of kernels runs fastest."""
    from support.fused_stacks import enlarge_tiles

    enlarge_tiles(monkeypatch)


@pytest.fixture
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tiles that float32 uses, in tests that `layers.tiled` parametrises."""
    from unbraid.accel.kernels import tuned

    if request.param == "bfloat16":
        monkeypatch.setattr(tuned, "FLOAT32", tuned.BFLOAT16)
    if request.param == "bfloat16 for many runs":
        table = {key: {1: by_runs[max(by_runs)]} for key, by_runs in tuned.BFLOAT16.items()}
        monkeypatch.setattr(tuned, "FLOAT32", table)
    return str(request.param)
