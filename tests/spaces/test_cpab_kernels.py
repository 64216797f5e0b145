"""Tests that compare compiled flows of piecewise-affine fields with tensor operations.

The tensor operations use the same data type or float64. Without a GPU, the kernels run in Triton's interpreter. The
fixture fills all memory that the tested functions allocate with NaN, to detect values that are never written.
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
Case = tuple[Tessellation, Tensor, Tensor, Tensor]


def random_case(
    shape: tuple[int, int], steps: int, separate: bool = False, b: int = 2, n: int = 40, edge_cases: bool = False
) -> Case:
    """Return a tessellation, a table of steps, points and incoming gradients, in float64.

    If `edge_cases` is true, some points lie on edges, in corners and slightly outside the square. If `separate` is
    true, each field has separate points.
    """
    t = Tessellation(*shape)
    table = cpab.step_table(t, torch.randn(b, t.dim, dtype=torch.float64), steps)
    points = torch.rand(b if separate else 1, n, 2, dtype=torch.float64)
    if edge_cases:
        values = [-1e-3, -1e-7, 0.0, 0.25, 1 / 3, 0.5, 0.75, 1.0, 1 + 1e-7]
        points[:, : len(values) ** 2] = torch.tensor(list(itertools.product(values, values)))[:n]
    return t, table, points, torch.randn(b, n, 2, dtype=torch.float64)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference divided by the norm of the expected value."""
    return float((found.cpu().double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-30))


def check_equals_tensor_operations(
    module: ModuleType, case: Case, steps: int, dtype: torch.dtype, device: str = "cpu"
) -> None:
    """Check that positions are bitwise equal and that gradients are equal up to rounding, in the same data type."""
    t, *tensors = case
    table, points, incoming = (x.to(dtype) for x in tensors)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    x, y = points.expand(len(table), -1, -1).unbind(-1)
    reached = torch.stack(cpab_steps.advance_points(t, cpab_steps.flatten_table(table), x, y, steps), -1)
    expected = cpab_steps.backpropagate(t, table, points, steps, incoming)
    inputs = [x.to(device) for x in (table, points, incoming)]
    assert torch.equal(module.forward(t, *inputs[:2], steps).cpu(), reached)
    found = module.backward(t, *inputs[:2], steps, inputs[2])
    assert [a.shape for a in found] == [table.shape, incoming.shape]
    assert max(relative_error(a, b) for a, b in zip(found, expected, strict=True)) < tolerance


def check_near_float64(module: ModuleType, case: Case, steps: int, device: str = "cpu") -> None:
    """Check float32 results against float64 results. Rounding must not move any point across an edge."""
    t, *tensors = case
    table, points, incoming = (x.float() for x in tensors)
    x, y = points.double().expand(len(table), -1, -1).unbind(-1)
    reached = torch.stack(cpab_steps.advance_points(t, cpab_steps.flatten_table(table.double()), x, y, steps), -1)
    expected = cpab_steps.backpropagate(t, table.double(), points.double(), steps, incoming.double())
    inputs = [x.to(device) for x in (table, points, incoming)]
    found = (module.forward(t, *inputs[:2], steps), *module.backward(t, *inputs[:2], steps, inputs[2]))
    assert max(relative_error(a, b) for a, b in zip(found, (reached, *expected), strict=True)) < 1e-5


def triton_module(device: str, name: str = "cpab_gpu") -> ModuleType:
    """Return a module with Triton kernels, or skip the test if they do not run on the device."""
    pytest.importorskip("triton", reason="Triton is not installed here")
    module = importlib.import_module(f"unbraid.spaces.{name}")
    if (device == "cpu") != importlib.import_module("unbraid.accel.kernels.jit").is_interpreted():
        pytest.skip("Triton's interpreter is used only without a GPU")
    return module


# Compiled code on the CPU


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("steps", [1, 7, 50])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cpu_code_equals_tensor_operations(
    shape: tuple[int, int], steps: int, separate: bool, dtype: torch.dtype
) -> None:
    check_equals_tensor_operations(
        cpab_cpu, random_case(shape, steps, separate, b=3, n=300, edge_cases=True), steps, dtype
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("steps", [1, 7, 50])
def test_cpu_code_in_float32_is_near_float64(shape: tuple[int, int], steps: int) -> None:
    check_near_float64(cpab_cpu, random_case(shape, steps, b=3, n=200), steps)


def test_cpu_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are bitwise equal, even if there are fewer images than threads."""
    monkeypatch.setattr(cpab_cpu, "WORK_PER_THREAD", 1)
    for b in (1, 2, 5):
        t, *tensors = random_case((2, 4), 7, b=b, n=300)
        single = (cpab_cpu.forward(t, *tensors[:2], 7), *cpab_cpu.backward(t, *tensors[:2], 7, tensors[2]))
        torch.set_num_threads(3)
        threaded = (cpab_cpu.forward(t, *tensors[:2], 7), *cpab_cpu.backward(t, *tensors[:2], 7, tensors[2]))
        torch.set_num_threads(1)
        assert all(torch.equal(x, y) for x, y in zip(single, threaded, strict=True))


def test_points_that_are_not_finite_do_not_affect_others() -> None:
    """Only the points that are NaN or infinite have such results, as in the tensor operations."""
    t, table, points, _ = random_case((2, 4), 3, n=6)
    points[0, :4, 0] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e300])
    x, y = points.expand(2, -1, -1).unbind(-1)
    expected = torch.stack(cpab_steps.advance_points(t, cpab_steps.flatten_table(table), x, y, 3), -1)
    torch.testing.assert_close(cpab_cpu.forward(t, table, points, 3), expected, rtol=0, atol=0, equal_nan=True)
    assert cpab_cpu.backward(t, table, points, 3, torch.ones(2, 6, 2, dtype=torch.float64))[0].shape == table.shape


def test_compiled_code_is_used_for_supported_tensors_only() -> None:
    """Compiled code supports float32 and float64. It does not support mixed types, other types or empty tensors."""
    t, table, points, _ = random_case((2, 4), 7)
    assert cpab.compiled_kernels(t, table, points) is cpab_cpu
    assert cpab.compiled_kernels(t, table.float(), points.float()) is cpab_cpu
    for a, b in ((table, points.float()), (table.half(), points.half()), (table[:0], points)):
        assert cpab.compiled_kernels(t, a, b) is None
    assert cpab.apply_steps(t, table[:0], points[0], 7).shape == (0, 40, 2)
    assert cpab.apply_steps(t, table.bfloat16(), points.bfloat16(), 7).dtype == torch.bfloat16


def test_tensors_need_not_be_contiguous() -> None:
    """Tensors may have any strides, as happens under vmap."""
    t, table, points, incoming = random_case((3, 5), 7, separate=True)
    strided = [x.transpose(0, -1).contiguous().transpose(0, -1) for x in (table, points, incoming)]
    assert torch.equal(cpab_cpu.forward(t, *strided[:2], 7), cpab_cpu.forward(t, table, points, 7))
    plain = cpab_cpu.backward(t, table, points, 7, incoming)
    assert all(torch.equal(a, b) for a, b in zip(cpab_cpu.backward(t, *strided[:2], 7, strided[2]), plain, strict=True))


# Triton kernels


@devices
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernels_equal_tensor_operations(shape: tuple[int, int], steps: int, separate: bool, device: str) -> None:
    check_equals_tensor_operations(
        triton_module(device), random_case(shape, steps, separate, n=90, edge_cases=True), steps, torch.float32, device
    )


@devices
def test_kernels_equal_tensor_operations_after_many_steps(device: str) -> None:
    """Fields are so strong that points often move to other triangles, or so weak that they never do."""
    t, table, points, incoming = random_case((2, 4), 50, b=1, n=70)
    for size in (3.0, 0.01):
        check_equals_tensor_operations(
            triton_module(device), (t, size * table, points, incoming), 50, torch.float32, device
        )


@devices
@pytest.mark.parametrize("shape", [(2, 4), (5, 5), (8, 8)], ids=str)
def test_kernels_in_float32_are_near_float64(shape: tuple[int, int], device: str) -> None:
    """This includes the maximum number of triangles that the kernels support."""
    check_near_float64(triton_module(device), random_case(shape, 5, b=1, n=70), 5, device)


@devices
def test_kernel_programs_can_process_several_blocks_of_points(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many images, each program processes several blocks of points, and the last block is partly empty."""
    module = triton_module(device)
    monkeypatch.setattr(module, "PROGRAMS", 4)
    check_equals_tensor_operations(module, random_case((2, 4), 4, n=300), 4, torch.float32, device)


@devices
def test_zero_field_moves_no_points(device: str) -> None:
    t, table, points, incoming = (
        x if isinstance(x, Tessellation) else x.float() for x in random_case((2, 4), 7, edge_cases=True)
    )
    for module, where in ((cpab_cpu, "cpu"), (triton_module(device), device)):
        zero, start, gradient = (x.to(where) for x in (0 * table, points, incoming))
        assert torch.equal(module.forward(t, zero, start, 7).cpu(), points.expand(2, -1, -1))
        assert torch.equal(module.backward(t, zero, start, 7, gradient)[1].cpu(), incoming)


@devices
def test_kernels_under_vmap_equal_a_loop(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of a stack of batches agree, whether they are computed inside or outside of vmap."""
    module = triton_module(device)
    monkeypatch.setattr(cpab, "compiled_kernels", lambda *arguments: module)
    t, table, points, _ = random_case((2, 4), 3, b=6, n=20)
    stack, start = table.float().unflatten(0, (3, 2)).to(device).requires_grad_(), points.float().to(device)

    def loss(part: Tensor, at: Tensor) -> Tensor:
        return cpab.apply_steps(t, part, at, 3).square().sum()

    inside = vmap(grad(loss, (0, 1)), (0, None))(stack.detach(), start)
    single = [grad(loss, (0, 1))(part, start) for part in stack.detach()]
    (outside,) = torch.autograd.grad(vmap(loss, (0, None))(stack, start).sum(), stack)
    for found, expected in zip(inside, zip(*single, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected))
    torch.testing.assert_close(outside, inside[0])


@devices
@pytest.mark.parametrize(("squarings", "size"), [(0, 0.5), (3, 4.0), (5, 10.0)])
def test_exponential_kernel_is_near_float64(squarings: int, size: float, device: str) -> None:
    """This holds for values and gradients, and under vmap."""
    kernel: Callable[..., Tensor] = triton_module(device, "expm_gpu").Expm1.apply
    g, incoming = size * torch.randn(3, 50, 2, 3), torch.randn(3, 50, 2, 3)
    exact = g.double().requires_grad_()
    expected = expm1(exact, squarings)
    (slope,) = torch.autograd.grad((expected * incoming).sum(), exact)

    def loss(part: Tensor, weight: Tensor) -> Tensor:
        return (kernel(part, squarings) * weight).sum()

    assert relative_error(kernel(g.to(device), squarings), expected.detach()) < 1e-5
    assert relative_error(grad(loss)(g.to(device), incoming.to(device)), slope) < 1e-5
    assert relative_error(vmap(grad(loss))(g.to(device), incoming.to(device)), slope) < 1e-5


def test_second_derivatives_are_rejected() -> None:
    t, table, points, _ = random_case((2, 4), 3)
    table.requires_grad_()
    (slope,) = torch.autograd.grad(cpab.apply_steps(t, table, points, 3).square().sum(), table, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        slope.square().sum().backward()


# Only on a GPU


def warp_with_gradients(t: Transformer, device: str) -> tuple[Tensor, ...]:
    """Return warped images, and the gradients for the images and for the parameters."""
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(64, 1, 64, 64, generator=generator).to(device).requires_grad_()
    gamma = (0.3 * torch.randn(64, t.dim, generator=generator)).to(device).requires_grad_()
    warped = t.forward(image, gamma)
    return warped, *torch.autograd.grad(warped.square().sum(), (image, gamma))


@pytest.mark.gpu
@pytest.mark.parametrize("t", [Affine(), Cpab(), Cpab(2, 4), Cpab(8, 8, 20), Cpab(9, 9, 20)], ids=str)
def test_warps_on_cuda_equal_those_on_the_cpu(t: Transformer) -> None:
    """There are many programs with several blocks each. Gradients of repeated flows are bitwise equal.

    Rounding may assign a point on an edge to the neighbouring triangle, which has a different gradient. Finer
    tessellations have more edges, so their tolerance is larger.
    """
    for found, expected in zip(warp_with_gradients(t, "cuda"), warp_with_gradients(t, "cpu"), strict=True):
        assert relative_error(found.detach(), expected.detach()) < (1e-2 if t.dim > 100 else 1e-3)
    if isinstance(t, Cpab) and t.cells.n_cells <= cpab.MAX_GPU_CELLS:
        gamma, grid = torch.randn(64, t.dim, device="cuda"), pixel_centres(64, 64, "cuda")
        gamma.requires_grad_()
        slopes = [torch.autograd.grad(t.points(gamma, grid).square().sum(), gamma)[0] for _ in range(2)]
        assert torch.equal(*slopes)


@pytest.mark.gpu
def test_flows_can_be_captured_in_a_cuda_graph() -> None:
    """If the graph is replayed with different parameters, its gradients equal those of eager execution."""
    t, grid = Cpab(), pixel_centres(64, 64, "cuda")
    gamma, incoming = (0.3 * torch.randn(32, t.dim)).cuda().requires_grad_(), torch.randn(32, 4096, 2).cuda()

    def step() -> Tensor:
        return torch.autograd.grad((t.points(gamma, grid) * incoming).sum(), gamma)[0]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        gamma.mul_(-0.5)
    graph.replay()
    assert torch.equal(captured, step())
