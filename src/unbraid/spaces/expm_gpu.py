"""The matrix exponential of affine generators and its gradient, each as a single Triton kernel launch."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from unbraid.accel.kernels.jit import block_count, kernel
from unbraid.accel.tracing import opaque
from unbraid.spaces.expm import DEGREE


@kernel
def load_affine(G: tl.tensor, r: tl.tensor, valid: tl.tensor, scale: tl.constexpr) -> tl.tensor:
    """Return the six entries of 2 x 3 matrices, multiplied by `scale`."""
    a, b = tl.load(G + 6 * r, mask=valid, other=0.0) * scale, tl.load(G + 6 * r + 1, mask=valid, other=0.0) * scale
    c, d = tl.load(G + 6 * r + 2, mask=valid, other=0.0) * scale, tl.load(G + 6 * r + 3, mask=valid, other=0.0) * scale
    e, f = tl.load(G + 6 * r + 4, mask=valid, other=0.0) * scale, tl.load(G + 6 * r + 5, mask=valid, other=0.0) * scale
    return a, b, c, d, e, f


@kernel
def _expm1_kernel(
    G: tl.tensor, GRAD: tl.tensor, OUT: tl.tensor, size: tl.tensor, SQUARINGS: tl.constexpr, BACK: tl.constexpr,
    DEGREE: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Compute `expm.expm1`, or its gradient if BACK is true.

    Horner's rule computes the Taylor sum by repeating sum <- g (I + sum) / k, from the highest degree k down to 1. The
    variables ga to gf are the entries of g, a to f those of the sum, and wa to wf those of the incoming gradient
    (GRAD). The variables pa to pf are the gradient for g: the transposed derivative of the sum, applied to the incoming
    gradient.
    """
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = r < size
    ga, gb, gc, gd, ge, gf = load_affine(G, r, valid, 0.5**SQUARINGS)
    wa, wb, wc, wd, we, wf = load_affine(GRAD, r, valid, 0.5**SQUARINGS)
    a, b, c, d, e, f = ga / DEGREE, gb / DEGREE, gc / DEGREE, gd / DEGREE, ge / DEGREE, gf / DEGREE
    pa, pb, pc, pd, pe, pf = wa / DEGREE, wb / DEGREE, wc / DEGREE, wd / DEGREE, we / DEGREE, wf / DEGREE
    for i in tl.static_range(1, DEGREE):
        part = 1.0 / (DEGREE - i)
        na, nb, nc = wa + wa * a + wd * d + ga * pa + gb * pb + gc * pc, wb + wb * a + we * d, wc + wc * a + wf * d
        nd, ne, nf = wd + wa * b + wd * e + ga * pd + gb * pe + gc * pf, we + wb * b + we * e, wf + wc * b + wf * e
        nb, ne = nb + gd * pa + ge * pb + gf * pc, ne + gd * pd + ge * pe + gf * pf
        pa, pb, pc, pd, pe, pf = na * part, nb * part, nc * part, nd * part, ne * part, nf * part
        na, nb, nc = ga + ga * a + gb * d, gb + ga * b + gb * e, gc + ga * c + gb * f
        nd, ne, nf = gd + gd * a + ge * d, ge + gd * b + ge * e, gf + gd * c + ge * f
        a, b, c, d, e, f = na * part, nb * part, nc * part, nd * part, ne * part, nf * part
    for _ in tl.static_range(SQUARINGS):
        na, nb, nc = pa * a + pd * d + a * pa + b * pb + c * pc, pb * a + pe * d + d * pa + e * pb + f * pc, pc * a
        nd, ne, nf = pa * b + pd * e + a * pd + b * pe + c * pf, pb * b + pe * e + d * pd + e * pe + f * pf, pc * b
        pa, pb, pc, pd = 2 * pa + na, 2 * pb + nb, 2 * pc + nc + pf * d, 2 * pd + nd
        pe, pf = 2 * pe + ne, 2 * pf + nf + pf * e
        na, nb, nc, nd, ne, nf = (
            a * a + b * d,
            a * b + b * e,
            a * c + b * f,
            d * a + e * d,
            d * b + e * e,
            d * c + e * f,
        )
        a, b, c, d, e, f = 2 * a + na, 2 * b + nb, 2 * c + nc, 2 * d + nd, 2 * e + ne, 2 * f + nf
    if BACK:
        a, b, c, d, e, f = pa, pb, pc, pd, pe, pf
    tl.store(OUT + 6 * r, a, mask=valid)
    tl.store(OUT + 6 * r + 1, b, mask=valid)
    tl.store(OUT + 6 * r + 2, c, mask=valid)
    tl.store(OUT + 6 * r + 3, d, mask=valid)
    tl.store(OUT + 6 * r + 4, e, mask=valid)
    tl.store(OUT + 6 * r + 5, f, mask=valid)


@opaque
def _run_kernel(g: Tensor, grad: Tensor | None, squarings: int) -> Tensor:
    """Return expm1(g), or the gradient for g if `grad`, the gradient for expm1(g), is given."""
    generators = g.contiguous()
    out = torch.empty(g.shape, dtype=g.dtype, device=g.device)
    size = g.numel() // 6
    incoming = generators if grad is None else grad.contiguous()
    settings = (squarings, grad is not None, DEGREE, 128)
    _expm1_kernel[(block_count(size, 128),)](generators, incoming, out, size, *settings, num_warps=4)
    return out


class Expm1(Function):
    """Compute `expm.expm1` of generators (..., 2, 3) with one kernel launch, and its gradient with another."""

    @staticmethod
    def forward(g: Tensor, squarings: int) -> Tensor:
        return _run_kernel(g, None, squarings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        g, ctx.squarings = inputs
        ctx.save_for_backward(g)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        gradient: Tensor = Expm1Gradient.apply(*ctx.saved_tensors, grad, ctx.squarings)  # type: ignore[no-untyped-call]
        return gradient, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], g: Tensor, squarings: int) -> tuple[Tensor, int]:
        result: Tensor = Expm1.apply(g.movedim(in_dims[0], 0), squarings)  # type: ignore[no-untyped-call]
        return result, 0


class Expm1Gradient(Function):
    """Compute the gradient of `Expm1`, which cannot be differentiated again."""

    @staticmethod
    def forward(g: Tensor, grad: Tensor, squarings: int) -> Tensor:
        return _run_kernel(g, grad, squarings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise NotImplementedError(
            "The exponential has no second derivative on a GPU. Do not differentiate its gradient."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], g: Tensor, grad: Tensor, squarings: int) -> tuple[Tensor, int]:
        pairs = zip((g, grad), in_dims, strict=False)
        each = (x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in pairs)
        result: Tensor = Expm1Gradient.apply(*each, squarings)  # type: ignore[no-untyped-call]
        return result, 0
