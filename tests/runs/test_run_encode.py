"""`Run.encode` accepts examples in every form that `from_arrays` accepts, and rejects others with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from support.own import random_pixels, random_vectors
from unbraid.data import from_arrays
from unbraid.errors import UserError
from unbraid.methods import VAE
from unbraid.nets.mlp import mlp
from unbraid.runs.network import build_net
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec

GREY, COLOUR = random_pixels(5, 1, 8, 6), random_pixels(5, 3, 8, 6)
VECTORS = random_vectors(5) / 100


def untrained(shape: tuple[int, ...]) -> Run:
    spec = RunSpec(VAE(), "arrays", steps=0, latents=3, net="mlp")
    return Run(spec, build_net(spec, shape, mlp).eval())


FORMS: dict[str, Callable[[Any], Any]] = {
    "bytes": lambda x: x,
    "hwc": lambda x: x.transpose(0, 2, 3, 1),
    "int64": lambda x: x.astype(np.int64),
    "lists of integers": lambda x: x.tolist(),
    "float64": lambda x: x / 255,
    "float32 hwc": lambda x: (x / 255).astype(np.float32).transpose(0, 2, 3, 1),
    "float tensor": lambda x: torch.tensor(x) / 255,
    "float tensor hwc with gradient": lambda x: (torch.tensor(x) / 255).permute(0, 2, 3, 1).requires_grad_(),
    "byte tensor": torch.tensor,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("images", [GREY, COLOUR], ids=["grey", "colour"])
def test_all_forms_have_the_codes_of_the_dataset(form: str, images: Any) -> None:
    run = untrained(images.shape[1:])
    wanted = run.net.encode(from_arrays(images).batch(torch.arange(5))).mean
    torch.testing.assert_close(run.encode(FORMS[form](images)), wanted)


def test_grey_images_need_no_channel_axis_and_bits_are_black_and_white() -> None:
    run, bits = untrained((1, 8, 6)), GREY[:, 0] > 127
    torch.testing.assert_close(run.encode(GREY[:, 0]), run.encode(GREY))
    for form in (bits, bits.astype(np.uint8), bits.astype(int).tolist(), bits * 1.0, torch.tensor(bits) * 1.0):
        torch.testing.assert_close(run.encode(form), run.encode(bits[:, None] * np.uint8(255)))


def test_floats_are_not_rounded_and_vectors_are_not_scaled() -> None:
    dim = torch.full((1, 1, 8, 6), 0.001)
    run = untrained((1, 8, 6))
    torch.testing.assert_close(run.encode(dim), run.net.encode(dim).mean)
    run = untrained((5,))
    for form in (VECTORS, VECTORS.tolist(), torch.tensor(VECTORS, dtype=torch.float64)):
        torch.testing.assert_close(run.encode(form), run.net.encode(torch.tensor(VECTORS)).mean)


WRONG: dict[str, tuple[tuple[int, ...], Any, str]] = {
    "floats of bytes": ((1, 8, 6), GREY * 1.0, "Pixels of type float64 must be in 0..1. Got 0 to 255 instead."),
    "float tensor of bytes": ((1, 8, 6), torch.tensor(GREY).float(), "of type float32 must be in 0..1. Got 0 to 255"),
    "normalised": ((1, 8, 6), torch.tensor(GREY) / 127.5 - 1, "Remove a normalisation"),
    "large integers": ((1, 8, 6), GREY.astype(int) + 200, "of type int64 must be in 0..255"),
    "not a number": ((1, 8, 6), np.full((1, 1, 8, 6), np.nan), "must be in 0..1. Got nan to nan"),
    "another size": ((1, 8, 6), random_pixels(5, 1, 6, 8), "shape (n, 1, 8, 6). Got shape (5, 1, 6, 8) instead. Crop"),
    "colour instead of grey": ((1, 8, 6), COLOUR, "Got shape (5, 3, 8, 6) instead."),
    "one image": ((1, 8, 6), GREY[0, 0], "Got shape (8, 6) instead. For a single example, pass x[None]."),
    "one image hwc": ((3, 8, 6), COLOUR[0].transpose(1, 2, 0), "For a single example, pass x[None]."),
    "no image": ((1, 8, 6), GREY[:0], "at least one example. Got an array of shape (0, 1, 8, 6)"),
    "words": ((1, 8, 6), ["cat"], "must be real numbers"),
    "ragged": ((1, 8, 6), [[1], [1, 2]], "rows of unequal length"),
    "one vector": ((5,), VECTORS[0], "shape (n, 5). Got shape (5,) instead. For a single example"),
    "whole vectors": ((5,), [[1, 2, 3, 4, 5]], "Vectors (n, d) must be floats"),
    "infinite vector": ((5,), torch.full((1, 5), np.inf), "Vectors must be finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_examples_are_rejected(case: str) -> None:
    shape, examples, message = WRONG[case]
    with pytest.raises(UserError) as error:
        untrained(shape).encode(examples)
    assert message in str(error.value)
