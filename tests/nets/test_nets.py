"""Tests of networks: parameter counts, shapes, layers that agree with PyTorch, and networks of the user."""

from __future__ import annotations

import importlib
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import unbraid.nets
from support.meshes import spheres
from support.nets import IMAGE_NETS
from unbraid.accel.layers import Conv, ConvTranspose, Flatten
from unbraid.data.dataset import FactorData
from unbraid.data.readers.faust import Meshes
from unbraid.methods import UVITAE, VAE, Method
from unbraid.nets.checking import check_net
from unbraid.nets.conv import burgess, dubois, fumero, kim, locatello
from unbraid.nets.mlp import critic, mlp
from unbraid.nets.registry import NETS, resolve_net
from unbraid.nets.vae import VAENet
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack
from unbraid.training.train import RunDefaults


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts_equal_those_of_disentanglement_lib() -> None:
    """The counts are those of disentanglement_lib (commit 86a644d) for 64 x 64 x 1 images and 10 latents."""
    encoder, decoder = locatello((1, 64, 64), 10)
    networks = (encoder, decoder, critic(10))
    assert [count_parameters(network) for network in networks] == [309_204, 381_313, 5_018_002]


@pytest.mark.parametrize("shape", [(c, n, n) for c in (1, 3) for n in (32, 64, 128)])
@pytest.mark.parametrize("name", IMAGE_NETS)
def test_outputs_have_the_right_shapes(name: str, shape: tuple[int, int, int]) -> None:
    encoder, decoder = NETS[name](shape, 7)
    net = VAENet(encoder, decoder)
    x = torch.rand(2, *shape)
    q = net.encode(x)
    assert q.mean.shape == q.logvar.shape == (2, 7)
    assert net.decode(q.mean).shape == x.shape
    assert net.nll(x, q.mean).shape == (2,)


def test_kernel_sizes_match_the_papers() -> None:
    def kernels(net: nn.Module) -> list[int]:
        return [m.kernel_size[0] for m in net.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)]

    assert [kernels(part) for part in locatello((1, 64, 64), 10)] == [[4, 4, 2, 2], [4, 4, 4, 4]]
    assert [kernels(part) for part in burgess((1, 64, 64), 10)] == [[4, 4, 4, 4], [4, 4, 4, 4]]
    assert [kernels(part) for part in fumero((1, 64, 64), 10)] == [[4, 4, 4, 4], [4, 4, 4, 4]]
    assert [kernels(part) for part in kim((1, 64, 64), 10)] == [[4, 4, 4, 4], [4, 4, 4, 4]]


def test_dubois_has_the_layers_of_burgess_and_uniform_weights_and_biases() -> None:
    """Weights are within sqrt(6 / n) and biases within sqrt(1 / n), for n inputs per output, and reach these bounds."""
    shape = (1, 64, 64)
    for net, plain in zip(dubois(shape, 10), burgess(shape, 10), strict=True):
        assert str(net) == str(plain)
        for layer in net.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
                inputs = layer.weight[0].numel()
                largest = float(layer.weight.detach().abs().max())
                assert 0.95 * (6 / inputs) ** 0.5 < largest <= (6 / inputs) ** 0.5
                assert layer.bias is not None
                assert 0 < float(layer.bias.detach().abs().max()) <= inputs**-0.5


def test_kim_has_no_activation_after_its_dense_layer() -> None:
    encoder, decoder = kim((1, 64, 64), 10)
    assert [type(layer) for layer in encoder][-3:] == [Flatten, nn.Linear, nn.Linear]  # type: ignore[attr-defined]
    dense = [m for m in (*encoder.modules(), *decoder.modules()) if isinstance(m, nn.Linear)]
    sizes = [(layer.in_features, layer.out_features) for layer in dense]
    assert sizes == [(1024, 128), (128, 20), (10, 128), (128, 1024)]


def test_fumero_is_the_network_of_table_1() -> None:
    """The layers are those of table 1 of the supplement. The encoder also returns log variances."""

    def layers(net: nn.Module) -> list[tuple[int, ...]]:
        """Return the inputs and outputs of each layer, and the kernel, stride and padding of convolutions."""
        found: list[tuple[int, ...]] = []
        for layer in net.modules():
            if isinstance(layer, nn.Linear):
                found.append((layer.in_features, layer.out_features))
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
                sizes = layer.kernel_size[0], layer.stride[0], int(layer.padding[0])
                found.append((layer.in_channels, layer.out_channels, *sizes))
        return found

    encoder, decoder = fumero((3, 64, 64), 10)
    convs = [(3, 32, 4, 2, 1), (32, 32, 4, 2, 1), (32, 64, 4, 2, 1), (64, 64, 4, 2, 1)]
    assert layers(encoder) == [*convs, (1024, 256), (256, 20)]
    transposed = [(64, 64, 4, 2, 1), (64, 32, 4, 2, 1), (32, 32, 4, 2, 1), (32, 3, 4, 2, 1)]
    assert layers(decoder) == [(10, 256), (256, 256), (256, 1024), *transposed]
    assert [sum(isinstance(m, nn.ReLU) for m in part.modules()) for part in (encoder, decoder)] == [5, 6]


@pytest.mark.parametrize("channels", [1, 3, 8])
@pytest.mark.parametrize("kernel", [2, 4])
def test_layers_equal_pytorch(channels: int, kernel: int) -> None:
    """Values, first derivatives and second derivatives agree in float64, for few and many channels and both kernels."""
    down, up = Conv(channels, 5, kernel).double(), ConvTranspose(5, channels, kernel).double()
    x = torch.randn(3, channels, 8, 12, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, 5, 8, 6, dtype=torch.float64, requires_grad=True)
    for layer, plain, value in ((down, nn.Conv2d.forward, x), (up, nn.ConvTranspose2d.forward, y)):
        found, expected = layer(value), plain(layer, value)
        torch.testing.assert_close(found, expected)
        inputs = (value, layer.weight, layer.bias)
        firsts = [torch.autograd.grad((out**3).sum(), inputs, create_graph=True) for out in (found, expected)]
        for a, b in zip(*firsts, strict=True):
            torch.testing.assert_close(a, b)
        seconds = [torch.autograd.grad(sum((g**2).sum() for g in f), inputs) for f in firsts]
        for a, b in zip(*seconds, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("side", [4, 16])
@pytest.mark.parametrize("kernel", [2, 4])
@pytest.mark.parametrize("layer_class", [Conv, ConvTranspose])
def test_gradients_in_bfloat16_equal_those_in_float32_up_to_rounding(layer_class: Any, kernel: int, side: int) -> None:
    layer = layer_class(8, 6, kernel)
    x = torch.randn(3, 8, side, side).bfloat16().float().requires_grad_()
    layer.weight.data = layer.weight.data.bfloat16().float()
    inputs, grads = [x, layer.weight], []
    for layer.reduced in (False, True):
        y = layer(x)
        torch.manual_seed(0)
        grads.append(torch.autograd.grad(y, inputs, torch.randn(y.shape).bfloat16().to(y.dtype)))
    for exact, rounded in zip(*grads, strict=True):
        assert (exact - rounded).norm() < 0.01 * exact.norm()


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_layers_under_vmap_equal_a_loop(channels: int) -> None:
    from torch.func import functional_call, stack_module_state, vmap

    nets = [nn.Sequential(Conv(channels, 4, 4), ConvTranspose(4, channels, 4)).double() for _ in range(3)]
    parameters, buffers = stack_module_state(nets)
    x = torch.randn(3, 2, channels, 8, 8, dtype=torch.float64)
    mapped = vmap(lambda p, b, v: functional_call(nets[0], (p, b), (v,)))(parameters, buffers, x)
    torch.testing.assert_close(mapped, torch.stack([net(v) for net, v in zip(nets, x, strict=True)]))


def test_convolution_of_odd_image_sizes_equals_pytorch() -> None:
    layer = Conv(1, 4, 4)
    x = torch.rand(2, 1, 7, 9)
    torch.testing.assert_close(layer(x), nn.Conv2d.forward(layer, x))


def test_gradients_of_plain_convolutions_can_be_differentiated_under_vmap() -> None:
    """The second derivatives are those of the fast function, which cannot be differentiated twice under `vmap`."""
    layer, x = Conv(1, 4, 4).double(), torch.rand(3, 2, 1, 8, 8, dtype=torch.float64)

    def gradient_size(images: Tensor) -> Tensor:
        gradient = torch.func.grad(lambda points: layer(points).tanh().sum())(images)
        return cast(Tensor, gradient.square().sum())

    fast = torch.stack([gradient_size(images) for images in x])
    layer.twice_differentiable = True
    plain = torch.func.vmap(gradient_size)(x)
    torch.testing.assert_close(plain, fast)
    found, expected = (torch.autograd.grad(sizes.sum(), [layer.weight, layer.bias]) for sizes in (plain, fast))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(1, 48, 48), (2, 64, 64), (1, 64, 32), (16,)])
def test_unsupported_shapes_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Got shape"):
        locatello(shape, 10)


def vae_spec(**settings: Any) -> RunSpec:
    """Return the spec of a VAE on the toy data, with the given settings."""
    return RunSpec(VAE(), "toy", **{"latents": 3, "net": "mlp", "likelihood": "gaussian", **settings})


def user_builder(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Build a small network with batch norm, as a user might."""
    encoder = nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2 * latents))
    return encoder, nn.Linear(latents, shape[0])


def test_user_builder_with_batch_norm_trains_in_a_stack(toy: FactorData) -> None:
    """The weights after training in a stack equal those after training alone. Running statistics are updated."""
    name, builder = resolve_net(user_builder)
    assert name.endswith(":user_builder")
    specs = [vae_spec(seed=s, net=name) for s in (0, 1)]
    stack = Stack(specs, toy, builder)
    single = Stack(specs[1:], toy, builder)
    for _ in range(3):
        stack.advance()
        single.advance()
    torch.testing.assert_close(stack.rows[1], single.rows[0], rtol=0, atol=0)
    assert stack.weights(0)["encoder.1.num_batches_tracked"] == 3
    torch.testing.assert_close(stack.weights(1)["encoder.1.running_mean"], single.weights(0)["encoder.1.running_mean"])
    assert stack.weights(0)["encoder.1.running_mean"].abs().sum() > 0


def test_user_modules_are_copied_with_their_weights(toy: FactorData) -> None:
    """All seeds start from the same weights. The name of the network depends on the weights."""
    pair = user_builder(toy.shape, 3)
    name, builder = resolve_net(pair)
    nets = [build_net(vae_spec(seed=s, net=name), toy.shape, builder) for s in (0, 1)]
    for net in nets:
        torch.testing.assert_close(net.state_dict()["decoder.weight"], pair[1].state_dict()["weight"])
    assert resolve_net(pair)[0] == name
    pair[1].weight.data += 1
    assert resolve_net(pair)[0] != name


def test_initialisation_depends_only_on_the_seed(toy: FactorData) -> None:
    a, b, c = (build_net(vae_spec(seed=s), toy.shape, mlp).state_dict() for s in (1, 1, 2))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["encoder.1.weight"], c["encoder.1.weight"])


@pytest.mark.parametrize(
    ("encoder", "decoder", "message"),
    [
        (nn.Linear(16, 5), nn.Linear(3, 16), "must return 2 x 3 numbers"),
        (nn.Linear(16, 6), nn.Linear(3, 15), r"must return the shape of an example, \(16,\)"),
        (nn.Linear(15, 6), nn.Linear(3, 16), r"encoder must accept inputs of shape \(2, 16\).*mat1 and mat2"),
        (nn.Linear(16, 6), nn.Linear(4, 16), r"decoder must accept inputs of shape \(2, 3\).*mat1 and mat2.*DeVAE"),
        (nn.Sequential(nn.Linear(16, 6), nn.Dropout(0.1)), nn.Linear(3, 16), "Remove the dropout layers"),
    ],
)
def test_wrong_shapes_and_dropout_are_rejected(encoder: nn.Module, decoder: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_net(VAENet(encoder, decoder, "gaussian"), (16,), 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [("locatelo", "Did you mean 'locatello'"), ("nowhere:pair", "importable as module:attribute"),
     ("http://", "Its parts must be names in Python"), ("http:pair", "'http' does not define 'pair'"),
     ("modules:abc", "Pass the pair again")],
)  # fmt: skip
def test_unknown_nets_are_rejected(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_net(name)


def test_package_exports_every_preset_and_the_pointnet_module_stays_importable() -> None:
    """Specs record `unbraid.nets.pointnet:pointnet`, although the package also exports the function `pointnet`."""
    for name, builder in NETS.items():
        assert getattr(unbraid.nets, name) is builder
    assert all(hasattr(unbraid.nets, name) for name in unbraid.nets.__all__)
    assert importlib.import_module("unbraid.nets.pointnet").pointnet is unbraid.nets.pointnet
    assert resolve_net("unbraid.nets.pointnet:pointnet")[1] is unbraid.nets.pointnet


def test_pointnet_has_one_recorded_name() -> None:
    """Runs that earlier releases trained keep their ids, in whichever of the three forms the network is given."""
    recorded = "unbraid.nets.pointnet:pointnet"
    for form in ("pointnet", recorded, unbraid.nets.pointnet):
        assert resolve_net(form) == (recorded, unbraid.nets.pointnet)


def test_meshes_have_pointnet_by_default(toy: FactorData, sprites: FactorData) -> None:
    meshes = Meshes("spheres", ("subject", "pose"), (5, 5), spheres().table, torch.zeros(1, 3, dtype=torch.int64))
    chosen = [RunDefaults.choose(data) for data in (meshes, toy, sprites)]
    assert [defaults.builder for defaults in chosen] == [unbraid.nets.pointnet, mlp, locatello]
    assert chosen[0].likelihood == "gaussian"


@pytest.mark.parametrize("name", ["vitae_celeba", "vitae_celeba_half"])
def test_vitae_celeba_is_vitae_conv_with_a_sigmoid(name: str) -> None:
    """Table 4 of the supplement has a sigmoid after the last layer. The weights are those of `vitae_conv`."""
    pairs = []
    for preset in (name, name.replace("celeba", "conv")):
        torch.manual_seed(0)
        pairs.append(NETS[preset]((3, 32, 32), 2))
    z, x = torch.randn(4, 2), torch.rand(4, 3, 32, 32)
    torch.testing.assert_close(pairs[0][1](z), pairs[1][1](z).sigmoid())
    torch.testing.assert_close(pairs[0][0](x), pairs[1][0](x))


@pytest.mark.parametrize("method", [VAE(), UVITAE()])
def test_sigmoid_before_a_bernoulli_likelihood_is_rejected(method: Method) -> None:
    net = method.build(NETS["vitae_celeba_half"], (3, 32, 32), 4, "bernoulli")
    with pytest.raises(ValueError, match="must return logits"):
        check_net(net, (3, 32, 32), 4)
    check_net(method.build(NETS["vitae_celeba_half"], (3, 32, 32), 4, "normal"), (3, 32, 32), 4)
