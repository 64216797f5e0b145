"""Settings of PyTorch that the user may have changed, and that must not change what training computes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from unbraid.accel.precision import full_float32_products
from unbraid.errors import UserError, warn_user

_on_gpu = threading.RLock()  # held by the thread that trains on a GPU


@contextmanager
def usual_new_tensors() -> Iterator[None]:
    """Create tensors on the CPU, and not as inference tensors, inside this context, unless told otherwise."""
    with ExitStack() as contexts:
        contexts.enter_context(torch.inference_mode(False))
        if torch.get_default_device().type != "cpu":
            contexts.enter_context(torch.device("cpu"))
        yield


@contextmanager
def training_settings() -> Iterator[None]:
    """Use the settings with which runs train inside this context.

    Gradients are computed, autocast is off, new tensors are on the CPU, and float32 products on a CPU are computed in
    float32, whatever the user has chosen outside.

    Raises:
        UserError: If the default data type of PyTorch is not float32. It belongs to the whole process, so it is not
            changed during a training.
    """
    if torch.get_default_dtype() != torch.float32:
        raise UserError(
            "Training needs float32 as the default data type of PyTorch, because objectives create tensors with it. "
            f"Got {torch.get_default_dtype()}. Call torch.set_default_dtype(torch.float32) before training."
        )
    with ExitStack() as contexts:
        contexts.enter_context(usual_new_tensors())
        contexts.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                contexts.enter_context(torch.autocast(kind, enabled=False))
        contexts.enter_context(full_float32_products())
        yield


@contextmanager
def one_training_on_gpu(device: torch.device) -> Iterator[None]:
    """If the device is a CUDA GPU, wait until no other thread is inside this context.

    A training on a GPU uses streams, and lists of postponed work, that belong to the whole process.
    """
    if device.type != "cuda":
        yield
        return
    if not _on_gpu.acquire(blocking=False):
        warn_user(
            "Another thread of this process is training on a GPU, so this training waits until that one has ended. To "
            "train at the same time, use another process, or pass all methods and seeds to one call."
        )
        _on_gpu.acquire()
    try:
        yield
    finally:
        _on_gpu.release()
