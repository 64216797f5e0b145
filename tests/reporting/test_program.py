"""Decoders as programs for a page: all methods and networks are supported, and others raise errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.nets import IMAGE_NETS
from support.programs import CASES, DECODE, WITH_DECODER, Case, decode_job, grey_level_error, node, tensor_ranges
from unbraid.distributions import Likelihood
from unbraid.errors import UserError
from unbraid.methods import METHODS, PCL, UVITAE, VAE
from unbraid.nets.registry import NETS
from unbraid.nets.vae import VAENet
from unbraid.nets.vitae import VitaeDecoder, build_vitae_net
from unbraid.reporting.program import decoder_program
from unbraid.spaces.transformers import Cpab

KNOWN = {"linear", "reshape", "relu", "leaky_relu", "conv_transpose", "sigmoid", "identity", "even", "warp"}


def names(ops: list[dict[str, Any]]) -> set[str]:
    inner = [op[key] for op in ops for key in ("ops", "image", "map") if key in op]
    return {op["op"] for op in ops}.union(*map(names, inner))


def wrapped(*layers: nn.Module, likelihood: str = "gaussian") -> VAENet:
    return VAENet(nn.Identity(), nn.Sequential(*layers), likelihood)


def test_every_method_is_covered() -> None:
    assert set(WITH_DECODER) == set(METHODS) - {"pcl"}
    assert set(METHODS) - {"pcl"} <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_ops_refer_to_all_weights(name: str) -> None:
    case = CASES[name]
    net = case.build()
    program = decoder_program(net, case.shape, case.latents)
    json.dumps(program.spec, allow_nan=False)
    assert names(program.spec["ops"]) <= KNOWN
    assert (program.spec["latents"], program.spec["shape"]) == (case.latents, list(case.shape))
    mean = case.likelihood == "bernoulli" and not isinstance(net.decoder, VitaeDecoder)
    assert program.spec["output"] == ("sigmoid" if mean else "identity")
    spans = tensor_ranges(program.spec["ops"])
    assert [start for start, _ in spans] == [0, *[end for _, end in spans[:-1]]]
    assert len(program.weights) == 2 * spans[-1][1]


def layers(ops: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [op for op in ops if "weight" in op]


@pytest.mark.parametrize("net", IMAGE_NETS)
def test_weights_are_those_of_the_decoder(net: str) -> None:
    """They are rounded to half precision; small layers have two parts."""
    decoder = NETS[net]((1, 32, 32), 5)[1]
    program = decoder_program(VAENet(nn.Identity(), decoder), (1, 32, 32), 5)
    weights = np.frombuffer(program.weights, "<f2").astype(np.float64)
    own = [layer for layer in decoder.modules() if isinstance(layer, nn.Linear | nn.ConvTranspose2d)]
    for op, layer in zip(layers(program.spec["ops"]), own, strict=True):
        small = layer.weight.numel() <= 2**14
        assert op["parts"] == 1 + small
        for name, tensor in (("weight", layer.weight), ("bias", layer.bias)):
            found = weights[op[name] :][: op["parts"] * tensor.numel()].reshape(op["parts"], -1).sum(0)
            want = tensor.detach().double().numpy().ravel()
            np.testing.assert_allclose(found, want, rtol=2**-21 if small else 2**-11, atol=2**-24)


def test_weights_of_maps_have_two_parts() -> None:
    """Their weights have two parts, whatever their number."""
    case = Case(UVITAE(transform="cpab", nx=8, ny=8), "mlp")
    (warp,) = decoder_program(case.build(), case.shape, case.latents).spec["ops"]
    assert any(op["in"] * op["out"] > 2**14 for op in layers(warp["map"]))
    assert {op["parts"] for op in layers(warp["map"])} == {2}
    assert {op["parts"] for op in layers(warp["image"])} == {1, 2}


@pytest.mark.parametrize("name", ["full size", "net vitae_conv", "CVITAE cpab", "even gaussian", "pmp"])
def test_node_decodes_like_torch(name: str) -> None:
    case = CASES[name]
    net, codes = case.build(), case.codes()
    assert (
        grey_level_error(net, codes, node(DECODE, decode_job(decoder_program(net, case.shape, case.latents), codes)))
        < 1
    )


ODD: dict[str, tuple[tuple[int, ...], list[nn.Module]]] = {
    "activations": ((7,), [nn.Linear(5, 7), nn.ELU(0.7), nn.Linear(7, 7), nn.SiLU(), nn.Linear(7, 7), nn.Softplus(2, 3),
                           nn.Linear(7, 7, bias=False), nn.Tanh(), nn.Identity(), nn.Linear(7, 7), nn.Sigmoid()]),
    "a reshape after a convolution": ((9,), [nn.Linear(5, 24), nn.Unflatten(1, (2, 3, 4)), nn.ConvTranspose2d(2, 3, 2),
                                             nn.Flatten(), nn.LeakyReLU(0.3), nn.Linear(60, 9)]),
    "convolutions": ((5, 5, 7), [nn.Linear(5, 84), nn.Unflatten(1, (2, 6, 7)), nn.Conv2d(2, 6, 3, 1, 1), nn.ReLU(),
                                 nn.Conv2d(6, 5, (3, 1), (1, 1), (0, 0)), nn.Conv2d(5, 5, (2, 3), 1, (1, 1))]),
    "a coarse convolution": ((4, 2, 3), [nn.Linear(5, 84), nn.Unflatten(1, (2, 6, 7)), nn.Conv2d(2, 4, 3, (4, 3), 1)]),
    "thirds": ((5, 13, 19), [nn.Linear(5, 24), nn.Unflatten(1, (1, 4, 6)),
                             nn.ConvTranspose2d(1, 5, (4, 5), 3, (0, 1), (0, 1))]),
    "holes": ((2, 8, 12), [nn.Linear(5, 24), nn.Unflatten(1, (1, 4, 6)), nn.ConvTranspose2d(1, 2, 1, 2, 0, 1)]),
    "cropped": ((1, 2, 6), [nn.Linear(5, 24), nn.Unflatten(1, (1, 4, 6)), nn.ConvTranspose2d(1, 1, 1, 1, (1, 0))]),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_node_runs_modules_of_other_networks(name: str) -> None:
    """With weights that half precision holds exactly, only the rounding of float32 remains as an error."""
    shape, layers = ODD[name]
    net = wrapped(*layers).requires_grad_(False)
    for parameter in net.parameters():
        parameter.copy_(parameter.half())
    codes = torch.randn(4, 5)
    pixels = torch.tensor(node(DECODE, decode_job(decoder_program(net, shape, 5), codes)))
    torch.testing.assert_close(pixels.view(4, *shape), net.decode(codes), rtol=1e-5, atol=1e-6)


def test_node_reads_every_half_precision_number() -> None:
    bits = np.arange(2**16, dtype="<u2")
    numbers = bits.view("<f2").astype(np.float32)
    finite = np.isfinite(numbers)
    body = "return Array.from(unbraid.half(Uint8Array.from(job)));"
    read = np.array(node(body, list(bits[finite].tobytes())), dtype=np.float32)
    np.testing.assert_array_equal(read, numbers[finite])


def test_a_code_of_another_size_raises() -> None:
    case = Case(VAE(), "mlp", latents=3)
    program = decoder_program(case.build(), case.shape, case.latents)
    body = DECODE.replace("return", "try {") + "} catch (error) { return error.message; }"
    assert node(body, decode_job(program, torch.zeros(1, 4))) == "A code has 3 numbers. Got 4."


class Twice(nn.Linear):
    """A subclass of a known layer that computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Own(nn.Module):
    """A layer that the page does not know."""

    def forward(self, x: Tensor) -> Tensor:
        return x


IMAGE = [nn.Linear(5, 64), nn.Unflatten(1, (4, 4, 4))]
UNSUPPORTED: dict[str, tuple[list[nn.Module], str]] = {
    "own": ([nn.Linear(5, 4), Own()], "the module Own"),
    "subclass": ([Twice(5, 4)], "the module Twice"),
    "groups": ([*IMAGE, nn.Conv2d(4, 4, 1, groups=2)], "one group"),
    "dilation": ([*IMAGE, nn.ConvTranspose2d(4, 4, 2, dilation=2)], "without dilation"),
    "circular": ([*IMAGE, nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")], "zero padding"),
    "same": ([*IMAGE, nn.Conv2d(4, 4, 3, padding="same")], "of a given width"),
    "matrix": ([*IMAGE, nn.Linear(4, 4)], "on vectors only"),
    "mixed": ([nn.Linear(5, 4), nn.Flatten(0)], "one example at a time"),
    "shape": ([nn.Linear(5, 3)], r"shape \(4,\). Got \(3,\)"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_modules_raise(name: str) -> None:
    layers, message = UNSUPPORTED[name]
    with pytest.raises(UserError, match=message) as error:
        decoder_program(wrapped(*layers), (4,), 5)
    assert "unbraid explore" in str(error.value)


@pytest.mark.parametrize("value", [7e4, float("inf"), float("nan")])
def test_weights_beyond_half_precision_raise(value: float) -> None:
    layer = nn.Linear(5, 4)
    with torch.no_grad():
        layer.bias[1] = value
    with pytest.raises(UserError, match=f"at most 65504, .* Got {value:g} in the bias of a linear"):
        decoder_program(wrapped(layer), (4,), 5)


def test_hooks_raise() -> None:
    layer = nn.Linear(5, 4)
    layer.register_forward_hook(lambda module, given, program: program + 1)
    with pytest.raises(UserError, match="cannot run hooks"):
        decoder_program(wrapped(layer), (4,), 5)


def test_a_missing_decoder_raises() -> None:
    with pytest.raises(UserError, match="no decoder"):
        decoder_program(PCL().build(NETS["mlp"], (1, 8, 8), 4, "bernoulli"), (1, 8, 8), 4)


def test_unsupported_flows_raise() -> None:
    net = build_vitae_net(NETS["mlp"], (1, 8, 8), (2, 2), Cpab(method="squaring"), "bernoulli", False)
    with pytest.raises(UserError, match=r"cannot warp images with Cpab.*squaring"):
        decoder_program(net, (1, 8, 8), 4)


def test_a_vitae_decoder_in_another_module_raises() -> None:
    """Inside another module its output would be that of a likelihood, not a mean."""
    net = UVITAE().build(NETS["mlp"], (1, 8, 8), 4, "bernoulli")
    net.decoder = nn.Sequential(net.decoder)  # type: ignore[assignment, arg-type]
    with pytest.raises(UserError, match="the module VitaeDecoder"):
        decoder_program(net, (1, 8, 8), 4)


def test_unsupported_likelihoods_raise() -> None:
    net = wrapped(nn.Linear(5, 4))
    net.likelihood = Likelihood(net.likelihood.nll, torch.exp, torch.log)
    with pytest.raises(UserError, match="means of Bernoulli and normal pixels"):
        decoder_program(net, (4,), 5)
