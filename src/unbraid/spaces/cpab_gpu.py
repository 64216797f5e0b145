"""Flows of piecewise-affine fields: all steps of a block of points in one program, there and back, and exponentials.

The arithmetic of positions is that of `cpab.advance`, operation by operation, and nothing is fused, so they are the
same to the bit. The way back adds up, for every triangle, what its points pull. A point stays in a triangle for many
steps, so its pulls are added up in registers; it holds a second set of sums for the triangle it was in before. Only
when a point of the block has no room left are the second sets of all of them added to the triangles, by a product with
ones where a point belongs to a triangle. No order depends on timing, so results are the same every time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from unbraid.accel.kernels.jit import blocks, interpreted, kernel, power
from unbraid.spaces.expm import DEGREE
from unbraid.spaces.tessellation import Tessellation

EXACT = {"enable_fp_fusion": False, "num_stages": 1}
AHEAD = {"BLOCK": 128, "num_warps": 4, **EXACT}
BLOCK, PROGRAMS = 32, 2560  # on the way back: one point a thread, one warp a program, and how many fill an H200
TOP: tl.constexpr = tl.constexpr(-65536)  # the bits of a float32 that a bfloat16 has
EIGHT: tl.constexpr = tl.constexpr(tl.float32 if interpreted() else tl.bfloat16)  # the interpreter has no bfloat16


@kernel
def cell_of(x: tl.tensor, y: tl.tensor, NX: tl.constexpr, NY: tl.constexpr) -> tl.tensor:
    """The rule of `tessellation.find_cells`; NaN belongs to the first triangle."""
    across, down = x * NX, y * NY
    column = tl.floor(tl.minimum(tl.maximum(across, 0.0), NX - 1.0))
    row = tl.floor(tl.minimum(tl.maximum(down, 0.0), NY - 1.0))
    across, down = across - column, down - row
    low, late = across < down, 1.0 - across < down
    return ((row * NX + column) * 4.0).to(tl.int32) + tl.where(low, 2, 0) + (low ^ late).to(tl.int32)


@kernel
def moved(part: tl.tensor, x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """Points after one step, from the places of their triangles' numbers."""
    dx = tl.load(part) * x + tl.load(part + 1) * y + tl.load(part + 2)
    dy = tl.load(part + 3) * x + tl.load(part + 4) * y + tl.load(part + 5)
    return x + dx, y + dy


@kernel
def _ahead(
    TABLE: tl.tensor, START: tl.tensor, OUT: tl.tensor, n: tl.tensor, own: tl.tensor, NX: tl.constexpr,
    NY: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    r = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = r < n
    at = START + i * own + 2 * r
    x, y = tl.load(at, mask=live, other=0.0), tl.load(at + 1, mask=live, other=0.0)
    for _ in range(STEPS):
        x, y = moved(TABLE + i * (24 * NX * NY) + cell_of(x, y, NX, NY) * 6, x, y)
    to = OUT + i * n * 2 + 2 * r
    tl.store(to, x, mask=live)
    tl.store(to + 1, y, mask=live)


@kernel
def delivered(
    acc: tl.tensor, cell: tl.tensor, a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, e: tl.tensor, f: tl.tensor,
    CELLS: tl.constexpr, BLOCK: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Triangles' sums with those of points added, which three numbers of 8 bits hold whole."""
    none = tl.zeros_like(a)
    left = tl.join(tl.join(a, e), tl.join(c, none))  # the last index of a join is the first to be chosen by
    right = tl.join(tl.join(b, f), tl.join(d, none))
    rest = tl.reshape(tl.join(left, right), (BLOCK, 8))
    belongs = (tl.arange(0, CELLS)[:, None] == cell[None, :]).to(EIGHT)
    for _ in tl.static_range(3):
        top = (rest.to(tl.int32, bitcast=True) & TOP).to(tl.float32, bitcast=True)
        acc = tl.dot(belongs, top.to(EIGHT), acc)
        rest -= top
    return acc


@kernel
def chosen(
    new: tl.tensor, a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, e: tl.tensor, f: tl.tensor, a1: tl.tensor,
    b1: tl.tensor, c1: tl.tensor, d1: tl.tensor, e1: tl.tensor, f1: tl.tensor,
) -> tl.tensor:  # fmt: skip
    """The first six where `new`, else the others."""
    return (
        tl.where(new, a, a1), tl.where(new, b, b1), tl.where(new, c, c1),
        tl.where(new, d, d1), tl.where(new, e, e1), tl.where(new, f, f1),
    )  # fmt: skip


@kernel
def pulled(part: tl.tensor, gx: tl.tensor, gy: tl.tensor) -> tl.tensor:
    """Gradients by points before a step from those after it."""
    px = tl.fma(tl.load(part), gx, tl.fma(tl.load(part + 3), gy, gx))
    return px, tl.fma(tl.load(part + 1), gx, tl.fma(tl.load(part + 4), gy, gy))


@kernel
def passed(way: tl.tensor, met: tl.tensor, s: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """Where points were before a step, and in which triangles."""
    at = way + s * (2 * BLOCK)
    return tl.load(at), tl.load(at + BLOCK), tl.load(met + s * BLOCK).to(tl.int32)


@kernel
def _back(
    TABLE: tl.tensor, START: tl.tensor, GRAD: tl.tensor, WAY: tl.tensor, MET: tl.tensor, PART: tl.tensor,
    BACK: tl.tensor, n: tl.tensor, own: tl.tensor, NX: tl.constexpr, NY: tl.constexpr, CELLS: tl.constexpr,
    STEPS: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    program = i * tl.num_programs(1) + tl.program_id(1)
    table = TABLE + i * (24 * NX * NY)
    way = WAY + program * (2 * BLOCK * STEPS) + tl.arange(0, BLOCK)
    met = MET + program * (BLOCK * STEPS) + tl.arange(0, BLOCK)
    acc = tl.zeros((CELLS, 8), tl.float32)
    a = tl.zeros((BLOCK,), tl.float32)
    b, c, d, e, f, a1, b1, c1, d1, e1, f1 = a, a, a, a, a, a, a, a, a, a, a
    now = tl.full((BLOCK,), -1, tl.int32)
    before = now
    for turn in range(ROUNDS):
        r = (tl.program_id(1) * ROUNDS + turn) * BLOCK + tl.arange(0, BLOCK)
        at = 2 * tl.minimum(r, n - 1)
        x, y = tl.load(START + i * own + at), tl.load(START + i * own + at + 1)
        for s in range(STEPS):
            cell = cell_of(x, y, NX, NY)
            tl.store(way + 2 * s * BLOCK, x)
            tl.store(way + (2 * s + 1) * BLOCK, y)
            tl.store(met + s * BLOCK, cell.to(MET.dtype.element_ty))
            x, y = moved(table + cell * 6, x, y)
        tl.debug_barrier()
        x, y, cell = passed(way, met, STEPS - 1, BLOCK)
        gx = tl.load(GRAD + i * n * 2 + at, mask=r < n, other=0.0)
        gy = tl.load(GRAD + i * n * 2 + at + 1, mask=r < n, other=0.0)
        for s in range(STEPS):
            new = cell != now
            if tl.max(new.to(tl.int32), 0) > 0:
                if tl.max((new & (before >= 0) & (now >= 0)).to(tl.int32), 0) > 0:
                    acc = delivered(acc, before, a1, b1, c1, d1, e1, f1, CELLS, BLOCK)
                    before = tl.full((BLOCK,), -1, tl.int32)
                a1, b1, c1, d1, e1, f1 = chosen(new, a, b, c, d, e, f, a1, b1, c1, d1, e1, f1)
                a, b, c, d, e, f = chosen(new, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, a, b, c, d, e, f)
                before = tl.where(new, now, before)
            now = cell
            a, b, c = tl.fma(gx, x, a), tl.fma(gx, y, b), c + gx
            d, e, f = tl.fma(gy, x, d), tl.fma(gy, y, e), f + gy
            gx, gy = pulled(table + cell * 6, gx, gy)
            x, y, cell = passed(way, met, tl.maximum(STEPS - 2 - s, 0), BLOCK)
        tl.store(BACK + i * n * 2 + at, gx, mask=r < n)
        tl.store(BACK + i * n * 2 + at + 1, gy, mask=r < n)
        tl.debug_barrier()
    acc = delivered(acc, before, a1, b1, c1, d1, e1, f1, CELLS, BLOCK)
    acc = delivered(acc, now, a, b, c, d, e, f, CELLS, BLOCK)
    to = PART + program * (8 * CELLS) + tl.arange(0, CELLS)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(to, acc)


def forward(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int
) -> Float[Tensor, "b n 2"]:
    """Points after all steps, as `cpab.Flow` has them."""
    b, n = len(table), points.shape[1]
    out = torch.empty(b, n, 2, dtype=table.dtype, device=table.device)
    given = (table.contiguous(), points.contiguous(), out, n, 2 * n if len(points) > 1 else 0)
    _ahead[(b, blocks(n, AHEAD["BLOCK"]))](*given, t.nx, t.ny, steps, **AHEAD)
    return out


def backward(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int,
    grad: Float[Tensor, "b n 2"],
) -> tuple[Float[Tensor, "b cells 2 3"], Float[Tensor, "b n 2"]]:  # fmt: skip
    """Gradients by the table and by the points of each image."""
    b, n, cells = len(table), points.shape[1], max(16, power(t.cells))
    rounds = blocks(blocks(n, BLOCK), blocks(PROGRAMS, b))
    programs = blocks(blocks(n, BLOCK), rounds)
    way = torch.empty(b * programs * 2 * BLOCK * steps, dtype=table.dtype, device=table.device)
    small = torch.uint8 if cells <= 256 else torch.int16
    met = torch.empty(b * programs * BLOCK * steps, dtype=small, device=table.device)
    part = torch.empty(b, programs, cells, 8, dtype=table.dtype, device=table.device)
    back = torch.empty(b, n, 2, dtype=table.dtype, device=table.device)
    given = (table.contiguous(), points.contiguous(), grad.contiguous(), way, met, part, back)
    sizes = (n, 2 * n if len(points) > 1 else 0, t.nx, t.ny, cells, steps, rounds, BLOCK)
    _back[(b, programs)](*given, *sizes, num_warps=1, **EXACT)
    return part.sum(1)[:, : t.cells, :6].reshape(table.shape), back


@kernel
def read(G: tl.tensor, r: tl.tensor, live: tl.tensor, scale: tl.constexpr) -> tl.tensor:
    """The six numbers of affine parts, scaled."""
    a, b = tl.load(G + 6 * r, mask=live, other=0.0) * scale, tl.load(G + 6 * r + 1, mask=live, other=0.0) * scale
    c, d = tl.load(G + 6 * r + 2, mask=live, other=0.0) * scale, tl.load(G + 6 * r + 3, mask=live, other=0.0) * scale
    e, f = tl.load(G + 6 * r + 4, mask=live, other=0.0) * scale, tl.load(G + 6 * r + 5, mask=live, other=0.0) * scale
    return a, b, c, d, e, f


@kernel
def _expm1(
    G: tl.tensor, PULL: tl.tensor, OUT: tl.tensor, size: tl.tensor, SQUARINGS: tl.constexpr, BACK: tl.constexpr,
    DEGREE: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """The sum is g (I + sum) / k from the last degree to the first; p is its change along the pull, transposed."""
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = r < size
    ga, gb, gc, gd, ge, gf = read(G, r, live, 0.5**SQUARINGS)
    wa, wb, wc, wd, we, wf = read(PULL, r, live, 0.5**SQUARINGS)
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
    tl.store(OUT + 6 * r, a, mask=live)
    tl.store(OUT + 6 * r + 1, b, mask=live)
    tl.store(OUT + 6 * r + 2, c, mask=live)
    tl.store(OUT + 6 * r + 3, d, mask=live)
    tl.store(OUT + 6 * r + 4, e, mask=live)
    tl.store(OUT + 6 * r + 5, f, mask=live)


def _launch(g: Tensor, pull: Tensor | None, squarings: int) -> Tensor:
    given = g.contiguous()
    out = torch.empty(g.shape, dtype=g.dtype, device=g.device)
    size = g.numel() // 6
    pulled = given if pull is None else pull.contiguous()
    _expm1[(blocks(size, 128),)](given, pulled, out, size, squarings, pull is not None, DEGREE, 128, num_warps=4)
    return out


class Expm1(Function):
    """`expm.expm1` of (*b, 2, 3) in one launch, and its gradient in another."""

    @staticmethod
    def forward(g: Tensor, squarings: int) -> Tensor:
        return _launch(g, None, squarings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        g, ctx.squarings = inputs
        ctx.save_for_backward(g)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        pulled: Tensor = Expm1Back.apply(*ctx.saved_tensors, grad, ctx.squarings)  # type: ignore[no-untyped-call]
        return pulled, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], g: Tensor, squarings: int) -> tuple[Tensor, int]:
        made: Tensor = Expm1.apply(g.movedim(in_dims[0], 0), squarings)  # type: ignore[no-untyped-call]
        return made, 0


class Expm1Back(Function):
    """The gradient of `Expm1`, which has none."""

    @staticmethod
    def forward(g: Tensor, pull: Tensor, squarings: int) -> Tensor:
        return _launch(g, pull, squarings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise NotImplementedError("The flow of a field can be differentiated once. Take no gradient of its gradient.")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], g: Tensor, pull: Tensor, squarings: int) -> tuple[Tensor, int]:
        pairs = zip((g, pull), in_dims, strict=False)
        each = (x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in pairs)
        made: Tensor = Expm1Back.apply(*each, squarings)  # type: ignore[no-untyped-call]
        return made, 0
