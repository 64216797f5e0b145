"""Compiled flows of piecewise-affine fields against the tensor code, and against it in float64.

Without a GPU Triton's kernels run in its interpreter; all memory that a launcher asks for holds NaN first.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from unbraid.spaces import cpab, cpab_cpu, cpab_steps
from unbraid.spaces.cpab import Tessellation
from unbraid.spaces.expm import expm1
from unbraid.spaces.transformers import Affine, Cpab, Transformer
from unbraid.spaces.warp import pixel_centres

pytestmark = pytest.mark.usefixtures("poisoned")

SHAPES = [(2, 4), (1, 1), (3, 5), (4, 4)]
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
Drawn = tuple[Tessellation, Tensor, Tensor, Tensor]


def drawn(shape: tuple[int, int], steps: int, own: bool = False, b: int = 2, n: int = 40, odd: bool = False) -> Drawn:
    """Steps of fields, points and gradients in float64; odd points lie on edges, in corners and a little outside."""
    t = Tessellation(*shape)
    table = cpab.steps_of(t, torch.randn(b, t.dim, dtype=torch.float64), steps)
    points = torch.rand(b if own else 1, n, 2, dtype=torch.float64)
    if odd:
        places = [-1e-3, -1e-7, 0.0, 0.25, 1 / 3, 0.5, 0.75, 1.0, 1 + 1e-7]
        points[:, : len(places) ** 2] = torch.tensor(list(itertools.product(places, places)))[:n]
    return t, table, points, torch.randn(b, n, 2, dtype=torch.float64)


def off(found: Tensor, wanted: Tensor) -> float:
    """The size of the difference, relative."""
    return float((found.cpu().double() - wanted.double()).norm() / wanted.double().norm().clamp_min(1e-30))


def compare(module: ModuleType, case: Drawn, steps: int, dtype: torch.dtype, device: str = "cpu") -> None:
    """Positions to the bit and gradients to rounding of the same type; all to its rounding of float64."""
    t, *given = case
    table, points, pull = (x.to(dtype) for x in given)
    close = 1e-5 if dtype == torch.float32 else 1e-13
    x, y = points.expand(len(table), -1, -1).unbind(-1)
    reached = torch.stack(cpab_steps.advance(t, cpab_steps.flat(table), x, y, steps), -1)
    wanted = cpab_steps.walk_back(t, table, points, steps, pull)
    there = [x.to(device) for x in (table, points, pull)]
    assert torch.equal(module.forward(t, *there[:2], steps).cpu(), reached)
    found = module.backward(t, *there[:2], steps, there[2])
    assert [a.shape for a in found] == [table.shape, pull.shape]
    assert max(off(a, b) for a, b in zip(found, wanted, strict=True)) < close


def agree_with_float64(module: ModuleType, case: Drawn, steps: int, device: str = "cpu") -> None:
    """Float32 against float64 from the same numbers; no point here meets an edge within rounding."""
    t, *given = case
    table, points, pull = (x.float() for x in given)
    x, y = points.double().expand(len(table), -1, -1).unbind(-1)
    reached = torch.stack(cpab_steps.advance(t, cpab_steps.flat(table.double()), x, y, steps), -1)
    wanted = cpab_steps.walk_back(t, table.double(), points.double(), steps, pull.double())
    there = [x.to(device) for x in (table, points, pull)]
    found = (module.forward(t, *there[:2], steps), *module.backward(t, *there[:2], steps, there[2]))
    assert max(off(a, b) for a, b in zip(found, (reached, *wanted), strict=True)) < 1e-5


def launches(device: str) -> ModuleType:
    """Triton's kernels, if they run on the device."""
    pytest.importorskip("triton", reason="Triton is not installed here")
    module = importlib.import_module("unbraid.spaces.cpab_gpu")
    if (device == "cpu") != importlib.import_module("unbraid.accel.kernels.jit").interpreted():
        pytest.skip("Triton's interpreter is on exactly where there is no GPU")
    return module


# On a CPU


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("steps", [1, 7, 50])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cpu_is_the_tensor_code(shape: tuple[int, int], steps: int, own: bool, dtype: torch.dtype) -> None:
    compare(cpab_cpu, drawn(shape, steps, own, b=3, n=300, odd=True), steps, dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("steps", [1, 7, 50])
def test_cpu_in_float32_is_near_float64(shape: tuple[int, int], steps: int) -> None:
    agree_with_float64(cpab_cpu, drawn(shape, steps, b=3, n=200), steps)


def test_cpu_shares_images_out_to_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as torch has, to the same bits, also with fewer images than threads."""
    monkeypatch.setattr(cpab_cpu, "SHARE", 1)
    for b in (1, 2, 5):
        t, *given = drawn((2, 4), 7, b=b, n=300)
        alone = (cpab_cpu.forward(t, *given[:2], 7), *cpab_cpu.backward(t, *given[:2], 7, given[2]))
        torch.set_num_threads(3)
        shared = (cpab_cpu.forward(t, *given[:2], 7), *cpab_cpu.backward(t, *given[:2], 7, given[2]))
        torch.set_num_threads(1)
        assert all(torch.equal(x, y) for x, y in zip(alone, shared, strict=True))


def test_what_is_not_finite_does_no_harm() -> None:
    """NaN and infinities stay with their points, as in the tensor code."""
    t, table, points, _ = drawn((2, 4), 3, n=6)
    points[0, :4, 0] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e300])
    x, y = points.expand(2, -1, -1).unbind(-1)
    wanted = torch.stack(cpab_steps.advance(t, cpab_steps.flat(table), x, y, 3), -1)
    torch.testing.assert_close(cpab_cpu.forward(t, table, points, 3), wanted, rtol=0, atol=0, equal_nan=True)
    assert cpab_cpu.backward(t, table, points, 3, torch.ones(2, 6, 2, dtype=torch.float64))[0].shape == table.shape


def test_which_code_is_taken() -> None:
    """Compiled code for the types it knows; the tensor code for what is mixed, empty or of another type."""
    t, table, points, _ = drawn((2, 4), 7)
    assert cpab.fast(t, table, points) is cpab_cpu
    assert cpab.fast(t, table.float(), points.float()) is cpab_cpu
    for a, b in ((table, points.float()), (table.half(), points.half()), (table[:0], points)):
        assert cpab.fast(t, a, b) is None
    assert cpab.flow(t, table[:0], points[0], 7).shape == (0, 40, 2)
    assert cpab.flow(t, table.bfloat16(), points.bfloat16(), 7).dtype == torch.bfloat16


def test_memory_in_any_order() -> None:
    """What a map hands over need not be contiguous."""
    t, table, points, pull = drawn((3, 5), 7, own=True)
    odd = [x.transpose(0, -1).contiguous().transpose(0, -1) for x in (table, points, pull)]
    assert torch.equal(cpab_cpu.forward(t, *odd[:2], 7), cpab_cpu.forward(t, table, points, 7))
    plain = cpab_cpu.backward(t, table, points, 7, pull)
    assert all(torch.equal(a, b) for a, b in zip(cpab_cpu.backward(t, *odd[:2], 7, odd[2]), plain, strict=True))


# Triton


@devices
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernels_are_the_tensor_code(shape: tuple[int, int], steps: int, own: bool, device: str) -> None:
    compare(launches(device), drawn(shape, steps, own, n=90, odd=True), steps, torch.float32, device)


@devices
def test_kernels_after_many_steps(device: str) -> None:
    """Fields so strong that points change triangles often, and so weak that they never do."""
    t, table, points, pull = drawn((2, 4), 50, b=1, n=70)
    for size in (3.0, 0.01):
        compare(launches(device), (t, size * table, points, pull), 50, torch.float32, device)


@devices
@pytest.mark.parametrize("shape", [(2, 4), (5, 5), (8, 8)], ids=str)
def test_kernels_in_float32_are_near_float64(shape: tuple[int, int], device: str) -> None:
    """Also of as many triangles as kernels take."""
    agree_with_float64(launches(device), drawn(shape, 5, b=1, n=70), 5, device)


@devices
def test_programs_of_several_rounds(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many images leave each program several blocks of points, the last of them partly empty."""
    module = launches(device)
    monkeypatch.setattr(module, "PROGRAMS", 4)
    compare(module, drawn((2, 4), 4, n=300), 4, torch.float32, device)


@devices
def test_nothing_moves_without_a_field(device: str) -> None:
    t, table, points, pull = (x if isinstance(x, Tessellation) else x.float() for x in drawn((2, 4), 7, odd=True))
    for module, place in ((cpab_cpu, "cpu"), (launches(device), device)):
        none, start, given = (x.to(place) for x in (0 * table, points, pull))
        assert torch.equal(module.forward(t, none, start, 7).cpu(), points.expand(2, -1, -1))
        assert torch.equal(module.backward(t, none, start, 7, given)[1].cpu(), pull)


@devices
def test_mapped_kernels_are_one_by_one(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients of a stack of batches, with the gradient inside the map and outside."""
    module = launches(device)
    monkeypatch.setattr(cpab, "fast", lambda *given: module)
    t, table, points, _ = drawn((2, 4), 3, b=6, n=20)
    stack, start = table.float().unflatten(0, (3, 2)).to(device).requires_grad_(), points.float().to(device)

    def loss(part: Tensor, at: Tensor) -> Tensor:
        return cpab.flow(t, part, at, 3).square().sum()

    inside = vmap(grad(loss, (0, 1)), (0, None))(stack.detach(), start)
    single = [grad(loss, (0, 1))(part, start) for part in stack.detach()]
    (outside,) = torch.autograd.grad(vmap(loss, (0, None))(stack, start).sum(), stack)
    for found, wanted in zip(inside, zip(*single, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(wanted))
    torch.testing.assert_close(outside, inside[0])


@devices
@pytest.mark.parametrize(("squarings", "size"), [(0, 0.5), (3, 4.0), (5, 10.0)])
def test_exponentials(squarings: int, size: float, device: str) -> None:
    """Values and gradients against float64, plain and mapped."""
    launched: Callable[..., Tensor] = launches(device).Expm1.apply
    g, pull = size * torch.randn(3, 50, 2, 3), torch.randn(3, 50, 2, 3)
    exact = g.double().requires_grad_()
    wanted = expm1(exact, squarings)
    (slope,) = torch.autograd.grad((wanted * pull).sum(), exact)

    def loss(part: Tensor, weight: Tensor) -> Tensor:
        return (launched(part, squarings) * weight).sum()

    assert off(launched(g.to(device), squarings), wanted.detach()) < 1e-5
    assert off(grad(loss)(g.to(device), pull.to(device)), slope) < 1e-5
    assert off(vmap(grad(loss))(g.to(device), pull.to(device)), slope) < 1e-5


def test_no_gradient_of_a_gradient() -> None:
    t, table, points, _ = drawn((2, 4), 3)
    table.requires_grad_()
    (slope,) = torch.autograd.grad(cpab.flow(t, table, points, 3).square().sum(), table, create_graph=True)
    with pytest.raises(NotImplementedError, match="can be differentiated once"):
        slope.square().sum().backward()


# On a GPU alone


def task(t: Transformer, device: str) -> tuple[Tensor, ...]:
    """Images under maps, and gradients by both."""
    chance = torch.Generator().manual_seed(0)
    image = torch.rand(64, 1, 64, 64, generator=chance).to(device).requires_grad_()
    gamma = (0.3 * torch.randn(64, t.dim, generator=chance)).to(device).requires_grad_()
    warped = t.forward(image, gamma)
    return warped, *torch.autograd.grad(warped.square().sum(), (image, gamma))


@pytest.mark.gpu
@pytest.mark.parametrize("t", [Affine(), Cpab(), Cpab(2, 4), Cpab(8, 8, 20), Cpab(9, 9, 20)], ids=str)
def test_cuda_warps_are_those_of_a_cpu(t: Transformer) -> None:
    """Large enough for many programs of several rounds; the same bits of flows every time.

    Rounding moves a point on an edge to the other triangle, whose gradient differs: finer fields have more edges.
    """
    for found, wanted in zip(task(t, "cuda"), task(t, "cpu"), strict=True):
        assert off(found.detach(), wanted.detach()) < (1e-2 if t.dim > 100 else 1e-3)
    if isinstance(t, Cpab) and t.cells.cells <= cpab.MOST:
        gamma, grid = torch.randn(64, t.dim, device="cuda"), pixel_centres(64, 64, "cuda")
        gamma.requires_grad_()
        slopes = [torch.autograd.grad(t.points(gamma, grid).square().sum(), gamma)[0] for _ in range(2)]
        assert torch.equal(*slopes)


@pytest.mark.gpu
def test_cuda_flows_can_be_captured() -> None:
    """A graph of values and gradients, replayed with other parameters, gives what eager launches give."""
    t, grid = Cpab(), pixel_centres(64, 64, "cuda")
    gamma, pull = (0.3 * torch.randn(32, t.dim)).cuda().requires_grad_(), torch.randn(32, 4096, 2).cuda()

    def step() -> Tensor:
        return torch.autograd.grad((t.points(gamma, grid) * pull).sum(), gamma)[0]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = step()
    with torch.no_grad():
        gamma.mul_(-0.5)
    graph.replay()
    assert torch.equal(kept, step())
