"""Settings of PyTorch that the user has chosen do not change training, and are restored."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch

from support.training import assert_same_run, quick_train
from unbraid.accel.precision import full_float32_products
from unbraid.accel.settings import one_training_on_gpu
from unbraid.errors import UserError


@contextmanager
def medium_precision() -> Iterator[None]:
    torch.set_float32_matmul_precision("medium")
    try:
        yield
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "precision": medium_precision,
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("data", ["toy", "sprites"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_of_the_user_do_not_change_training(setting: str, data: str) -> None:
    (expected,) = quick_train(data=data, steps=3, precision="fp32")
    torch.manual_seed(7)
    state = torch.get_rng_state()
    with SETTINGS[setting]():
        (found,) = quick_train(data=data, steps=3, precision="fp32")
    assert torch.equal(torch.get_rng_state(), state)
    assert_same_run(found, expected)
    assert not any(parameter.is_inference() for parameter in found.net.parameters())


def test_another_default_data_type_raises() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(UserError, match=r"default data type .* Got torch.float64"):
            quick_train()
    finally:
        torch.set_default_dtype(torch.float32)


def test_full_products_last_until_the_last_context_ends() -> None:
    """Contexts of different threads need not end in the order in which they began."""
    first, second = full_float32_products(), full_float32_products()
    with medium_precision():
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_float32_matmul_precision() == "highest"
        second.__exit__(None, None, None)


def test_trainings_on_a_gpu_wait_for_those_of_other_threads() -> None:
    """Those of the same thread, and those on a CPU, do not wait."""
    gpu, order, waiting = torch.device("cuda"), [], threading.Event()

    def train() -> None:
        with one_training_on_gpu(torch.device("cpu")):
            order.append("cpu")
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            waiting.set()
            with one_training_on_gpu(gpu):
                order.append("second")
        assert "Another thread" in str(found[0].message)

    thread = threading.Thread(target=train)
    with one_training_on_gpu(gpu), one_training_on_gpu(gpu):
        thread.start()
        waiting.wait(60)
        thread.join(0.2)
        order.append("first")
    thread.join(60)
    assert order == ["cpu", "first", "second"]
