"""Traversals of encoders and decoders from outside unbraid, on images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.distributions import Normal

import unbraid as ub
from unbraid.data import FactorData
from unbraid.errors import UserError
from unbraid.pictures.any_model import Adapter, as_images
from unbraid.pictures.images import LABEL, MARGIN
from unbraid.pictures.traversal import traverse_images

POSITIONS = torch.tensor([-1.0, 0.0, 2.0])


class Halves:
    """A model with the codes (level of the right half / 10, level of the left half, 0). `decode` inverts `encode`."""

    def encode(self, x: Tensor) -> Tensor:
        right, left = x[..., x.shape[3] // 2 :].mean((1, 2, 3)), x[..., : x.shape[3] // 2].mean((1, 2, 3))
        return torch.stack([right / 10, left, 0 * left], 1)

    def decode(self, z: Tensor) -> Tensor:
        halves = torch.stack([z[:, 1], 10 * z[:, 0]], 1)
        return halves[:, None, None, :].repeat_interleave(4, 3).repeat_interleave(8, 2)


class NormalisedNet(nn.Module):
    """A network with a layer that behaves differently in training mode. It records its mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.inward, self.outward = nn.Linear(64, 4), nn.Linear(4, 64)
        self.modes: list[bool] = []

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.modes.append(self.training)
        mean = self.inward(self.norm(x.flatten(1)))
        return mean, 0 * mean

    def decode(self, z: Tensor) -> Tensor:
        return self.outward(z).sigmoid()


@pytest.fixture
def x() -> Tensor:
    halves = torch.rand(50, 1, 1, 2)
    return halves.repeat_interleave(4, 3).repeat_interleave(8, 2)


def test_every_latent_takes_multiples_of_its_standard_deviation(x: Tensor) -> None:
    traversal = traverse_images(Halves(), x, 3, POSITIONS)
    codes = Halves().encode(x)
    std, mean = codes.std(0, correction=0), codes.mean(0)
    assert [label.column for label in traversal.labels] == [1, 0, 2]
    assert [label.std for label in traversal.labels[:2]] == [float(std[1]), float(std[0])]
    assert traversal.labels[2].text() == "latent 2\nstd 0"
    z = Halves().encode(traversal.decoded.flatten(0, 1)).unflatten(0, (3, 3))
    torch.testing.assert_close(z[0, :, 1], mean[1] + std[1] * POSITIONS)
    torch.testing.assert_close(z[0, :, 0], codes[3, 0].expand(3))
    torch.testing.assert_close(z[1, :, 0], mean[0] + std[0] * POSITIONS)
    torch.testing.assert_close(z[1, :, 1], codes[3, 1].expand(3))
    torch.testing.assert_close(traversal.decoded[2], traversal.reconstruction.expand(3, -1, -1, -1))
    torch.testing.assert_close(traversal.reconstruction, x[3])


def test_posteriors_with_variances_are_sorted_by_nats(x: Tensor) -> None:
    """A latent with a wide posterior comes after one with a narrow posterior, even if its codes vary more."""

    def encode(images: Tensor) -> Normal:
        mean = Halves().encode(images)
        return Normal(mean, torch.tensor([0.01, 1.0, 1.0]).expand_as(mean))

    traversal = traverse_images((encode, Halves().decode), x, 0, POSITIONS)
    assert [label.column for label in traversal.labels] == [0, 1, 2]
    assert traversal.labels[2].text() == "latent 2\n0.00 nats"
    moved = Halves().encode(traversal.decoded[0])
    torch.testing.assert_close(moved[:, 0], POSITIONS)


def test_latents_of_a_single_image_change_relative_to_its_code(x: Tensor) -> None:
    traversal = traverse_images(Halves(), x[:1], 0, POSITIONS)
    assert [label.text() for label in traversal.labels] == ["latent 0", "latent 1", "latent 2"]
    torch.testing.assert_close(Halves().encode(traversal.decoded[1])[:, 1], Halves().encode(x[:1])[0, 1] + POSITIONS)


def test_modules_are_in_evaluation_mode_and_restored_afterwards(x: Tensor) -> None:
    model = NormalisedNet().train()
    model.norm.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    picture = ub.traverse(model, x)
    assert isinstance(picture.image, Image.Image)
    assert picture.paths == []
    assert model.modes == [False]
    assert model.training
    assert not model.norm.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="codes"):
        ub.traverse((lambda images: images, model.decode), x)
    assert model.training


def test_bytes_arrays_and_tensors_give_the_same_picture(x: Tensor) -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    decoder = nn.Sequential(nn.Linear(3, 64), nn.Sigmoid(), nn.Unflatten(1, (1, 8, 8)))
    byte = (x * 255).round().byte()
    pictures = [ub.traverse((encoder, decoder), images).image for images in (byte, byte.numpy(), byte.float() / 255)]
    assert pictures[0].size == (LABEL + 9 * (64 + MARGIN) + MARGIN, 4 * (64 + MARGIN) + MARGIN)
    assert all(np.array_equal(np.asarray(pictures[0]), np.asarray(other)) for other in pictures[1:])
    fewer = ub.traverse((encoder, decoder), byte, rows=2, columns=5, example=7).image
    assert fewer.size == (LABEL + 5 * (64 + MARGIN) + MARGIN, 3 * (64 + MARGIN) + MARGIN)


def test_picture_and_animation_are_written_to_a_folder(x: Tensor, tmp_path: Path) -> None:
    picture = ub.traverse(Halves(), x, out=tmp_path / "new")
    assert picture.paths == [tmp_path / "new" / "traversal.png", tmp_path / "new" / "traversal.gif"]
    assert picture._repr_png_() == picture.paths[0].read_bytes()
    with Image.open(tmp_path / "new" / "traversal.png") as written:
        assert np.array_equal(np.asarray(written), np.asarray(picture.image))
    with Image.open(tmp_path / "new" / "traversal.gif") as animation:
        assert animation.n_frames > 12


def test_runs_on_images_use_the_traversal_of_their_method(sprites: FactorData) -> None:
    (run,) = ub.train(ub.methods.PMP(subspaces=3), data=sprites, steps=1, latents=4, quiet=True)
    x = sprites.images(range(0, 9000, 300))
    traversal = traverse_images(run, as_images(x), 0, POSITIONS)
    assert sorted(label.name for label in traversal.labels) == ["subspace 0", "subspace 1", "subspace 2"]
    assert ub.traverse(run, x).image.size[1] == 4 * (64 + MARGIN) + MARGIN
    (encoder,) = ub.train(ub.methods.PCL(), data=sprites, steps=1, quiet=True)
    with pytest.raises(UserError, match="encoder only"):
        ub.traverse(encoder, x)


def test_codes_and_images_in_many_forms_are_accepted(x: Tensor) -> None:
    plain = np.asarray(ub.traverse(Halves(), x).image)

    class Posterior:
        def __init__(self, mean: Any) -> None:
            self.mean = mean

    halves_model = Halves()
    forms: list[Any] = [
        (lambda i: (halves_model.encode(i), "more"), halves_model.decode),
        (lambda i: Posterior(halves_model.encode(i)), lambda z: halves_model.decode(z)[:, 0]),
        (lambda i: halves_model.encode(i).numpy(), lambda z: halves_model.decode(z).flatten(1).numpy()),
        [lambda i: halves_model.encode(i).double(), lambda z: (halves_model.decode(z), None)],
    ]
    for form in forms:
        assert np.array_equal(np.asarray(ub.traverse(form, x).image), plain)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(5, 8, 8, 3), r"Move the channels first"),
        (torch.rand(5, 8, 8), r"x\[:, None\]"),
        (torch.rand(8, 8), r"x\[None, None\]"),
        (torch.rand(5, 2, 8, 8), r"1 or 3 channels. Got \(5, 2, 8, 8\)"),
        (torch.rand(0, 1, 8, 8), r"Got \(0, 1, 8, 8\)"),
        ([["a"]], r"tensor or an array of numbers"),
        ("sprites", r"needs images x"),
        (None, r"needs images x"),
    ],
)
def test_invalid_images_raise(images: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        ub.traverse(Halves(), images)


def test_parts_of_a_model_may_be_called_encoder_and_decoder(x: Tensor) -> None:
    class Parts:
        encoder, decoder = staticmethod(Halves().encode), staticmethod(Halves().decode)

    assert ub.traverse(Parts(), x).image.tobytes() == ub.traverse(Halves(), x).image.tobytes()


def test_invalid_models_raise(x: Tensor) -> None:
    halves_model = Halves()
    cases: list[tuple[Any, str]] = [
        (halves_model.encode, "Got method instead"),
        (3, "Got int instead"),
        ((halves_model.encode,), "Got tuple instead"),
        ((lambda i: i, halves_model.decode), r"must return codes \(n, d\).*Got shape \(50, 1, 8, 8\)"),
        ((lambda i: halves_model.encode(i)[:3], halves_model.decode), r"Got shape \(3, 3\)"),
        ((lambda i: halves_model.encode(i) / 0, halves_model.decode), "finite codes"),
        ((halves_model.encode, lambda z: z), r"must return 27 images .* Got shape \(27, 3\)"),
        ((halves_model.encode, lambda z: halves_model.decode(z)[:1]), r"Got shape \(1, 1, 8, 8\)"),
    ]
    for model, message in cases:
        with pytest.raises((ValueError, TypeError), match=message):
            ub.traverse(model, x)
    for settings in ({"columns": 1}, {"span": 0.0}, {"rows": 0}, {"example": 50}, {"example": -1}):
        with pytest.raises(ValueError, match="Got"):
            ub.traverse(halves_model, x, **settings)


def test_values_that_are_not_pixels_warn(x: Tensor) -> None:
    with pytest.warns(RuntimeWarning, match=r"If they are logits"):
        ub.traverse((Halves().encode, lambda z: 20 * Halves().decode(z) - 10), x)


def test_the_module_of_bound_methods_is_found() -> None:
    model = NormalisedNet()
    assert Adapter.from_model((model.encode, model.decode)).modules == (model,)
    assert Adapter.from_model((model.encode, model.decode)).device == torch.device("cpu")
