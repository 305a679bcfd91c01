"""A decode step in Triton: all of the GPU reads each weight, key and value once.

Tests on a CPU compare it with torch's operations, in Triton's interpreter. On the user's GPU, the
fast path must give the tokens of the plain one before it answers.
"""

# Triton comes with torch's builds for CUDA only, and is not typed.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false, reportMissingParameterType=false
# pyright: reportUntypedFunctionDecorator=false, reportIndexIssue=false
# ruff: noqa: ANN001, N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxtui.brains.voxtral.decoder import Cache, Decoder
from voxtui.brains.voxtral.weights import Fp8Weight

BLOCK = (4, 1024, 4)
"""Rows, columns and warps of a product. Voxtral's smallest has 3072 rows: 768 blocks, 132 SMs."""

CUT = (32, 32)
"""Parts of the cache per key head, and positions that a block reads at a time. With Voxtral's 8 key
heads there are 256 blocks for 132 SMs from 1,024 positions on, and 128 at 512."""

GROUP = 16
"""Rows of the tensor cores' smallest product; a key head has 4 query heads."""


@triton.jit
def product_kernel(  # noqa: ANN201
    x, weight, scales, norm, added, y, rows, eps,
    columns: tl.constexpr, SCALED: tl.constexpr, NORMED: tl.constexpr, GATED: tl.constexpr,
    ADDED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    column = tl.arange(0, COLUMNS)
    address = weight + row[:, None] * columns + column[None, :]
    wanted = inside[:, None] & (column < columns)[None, :]
    # Weights are loaded one block ahead of their use.
    next_one = tl.load(address, mask=wanted, other=0.0)
    next_up = tl.load(address + rows * columns, mask=wanted, other=0.0) if GATED else next_one
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    other = tl.zeros((ROWS, COLUMNS), tl.float32)
    squares = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, columns, COLUMNS):
        one, up = next_one, next_up
        after = start + COLUMNS + column
        address += COLUMNS
        wanted = inside[:, None] & (after < columns)[None, :]
        next_one = tl.load(address, mask=wanted, other=0.0)
        next_up = tl.load(address + rows * columns, mask=wanted, other=0.0) if GATED else next_one
        within = start + column < columns
        part = tl.load(x + start + column, mask=within, other=0.0).to(tl.float32)
        if NORMED:
            squares += part * part
            part *= tl.load(norm + start + column, mask=within, other=0.0).to(tl.float32)
        total += one.to(tl.float32) * part[None, :]
        if GATED:
            other += up.to(tl.float32) * part[None, :]
    # The norm's factor is one for the whole row, so it can wait until the weights were read.
    factor = tl.rsqrt(tl.sum(squares, axis=0) / columns + eps) if NORMED else 1.0
    found = tl.sum(total, axis=1) * factor
    if SCALED:
        found *= tl.load(scales + row, mask=inside, other=0.0)
    if GATED:
        second = tl.sum(other, axis=1) * factor
        if SCALED:
            second *= tl.load(scales + rows + row, mask=inside, other=0.0)
        found = found * tl.sigmoid(found) * second
    if ADDED:
        found += tl.load(added + row, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row, found.to(y.dtype.element_ty), mask=inside)


def product(
    x: Tensor, weight: Tensor, scales: Tensor | None = None, norm: Tensor | None = None,
    eps: float = 0.0, added: Tensor | None = None, gated: bool = False,
    block: tuple[int, int, int] | None = None,
) -> Tensor:  # fmt: skip
    """Multiply (1, in) by (out, in) `weight` to (1, out), summed in float32.

    `scales`: (out,), for a weight of e4m3. `norm`: the weight of an RMS norm of `x` before.
    `gated`: multiply SiLU of the first half of the result by the second half. `added`: a tensor
    added to the result.
    """
    high, wide, warps = block or BLOCK
    rows, columns = weight.shape
    if gated:
        rows //= 2
    y = torch.empty((1, rows), dtype=x.dtype, device=x.device)
    product_kernel[(triton.cdiv(rows, high),)](
        x, weight, x if scales is None else scales, x if norm is None else norm,
        x if added is None else added, y, rows, eps, columns, scales is not None, norm is not None,
        gated, added is not None, high, wide, num_warps=warps,
    )  # fmt: skip
    return y


@triton.jit
def attend_parts_kernel(  # noqa: ANN201
    qkv, position, cos, sin, kv, mixed, weights, capacity, scale,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, GROUP: tl.constexpr,
    SPLITS: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    head, split = tl.program_id(0), tl.program_id(1)
    past = tl.load(position).to(tl.int32)
    each = tl.cdiv(tl.cdiv(past, SPLITS), PLACES) * PLACES
    first = split * each
    last = tl.minimum(first + each, past)

    number = tl.arange(0, GROUP)
    column = tl.arange(0, SIZE)
    swapped = (column + SIZE // 2) % SIZE
    turned_by = tl.load(cos + past * SIZE + column).to(tl.float32)
    across_by = tl.load(sin + past * SIZE + column).to(tl.float32)
    row = qkv + (head * HEADS + number[:, None]) * SIZE
    there = (number < HEADS)[:, None]
    query = tl.load(row + column[None, :], mask=there, other=0.0).to(tl.float32) * turned_by
    query += tl.load(row + swapped[None, :], mask=there, other=0.0).to(tl.float32) * across_by
    query = query.to(kv.dtype.element_ty)

    keys = kv + head * capacity * SIZE
    values = keys + KEY_HEADS * capacity * SIZE
    most = tl.full((GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    mix = tl.zeros((GROUP, SIZE), tl.float32)
    if split == 0:
        # The new position itself is taken from registers, so that no block waits for the cache.
        own = qkv + (KEY_HEADS * HEADS + head) * SIZE
        turned = tl.load(own + column).to(tl.float32) * turned_by
        turned += tl.load(own + swapped).to(tl.float32) * across_by
        new_key = turned.to(kv.dtype.element_ty)
        new_value = tl.load(own + KEY_HEADS * SIZE + column)
        tl.store(keys + past * SIZE + column, new_key)
        tl.store(values + past * SIZE + column, new_value)
        most = tl.sum(query.to(tl.float32) * new_key.to(tl.float32)[None, :], axis=1) * scale
        total += 1.0
        mix += new_value.to(tl.float32)[None, :]
    for start in range(first, last, PLACES):
        looked = start + tl.arange(0, PLACES)
        used = looked < last
        key = tl.load(
            keys + looked[None, :] * SIZE + column[:, None], mask=used[None, :], other=0.0
        )
        value = tl.load(
            values + looked[:, None] * SIZE + column[None, :], mask=used[:, None], other=0.0
        )
        score = tl.dot(query, key, input_precision="ieee") * scale
        score = tl.where(used[None, :], score, float("-inf"))
        higher = tl.maximum(most, tl.max(score, axis=1))
        chance = tl.exp2(score - higher[:, None])
        kept = tl.exp2(most - higher)
        total = total * kept + tl.sum(chance, axis=1)
        mix = mix * kept[:, None] + tl.dot(chance.to(value.dtype), value, input_precision="ieee")
        most = higher
    part = (head * SPLITS + split) * HEADS + number
    tl.store(mixed + part[:, None] * SIZE + column[None, :], mix, mask=there)
    tl.store(weights + part * 2, most, mask=number < HEADS)
    tl.store(weights + part * 2 + 1, total, mask=number < HEADS)


@triton.jit
def attend_sum_kernel(  # noqa: ANN201
    mixed, weights, y,
    HEADS: tl.constexpr, SIZE: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    split = tl.arange(0, SPLITS)
    column = tl.arange(0, SIZE)
    part = (head // HEADS * SPLITS + split) * HEADS + head % HEADS
    most = tl.load(weights + part * 2)
    share = tl.exp2(most - tl.max(most, axis=0))  # 0 for a part without a position
    total = tl.sum(share * tl.load(weights + part * 2 + 1), axis=0)
    mix = tl.load(mixed + part[:, None] * SIZE + column[None, :])
    found = tl.sum(mix * share[:, None], axis=0) / total
    tl.store(y + head * SIZE + column, found.to(y.dtype.element_ty))


LOG2_E = 1.4426950408889634


def attend(
    qkv: Tensor, position: Tensor, cos: Tensor, sin: Tensor, kv: Tensor, heads: int,
    cut: tuple[int, int] = CUT,
) -> Tensor:  # fmt: skip
    """Return the attention of the `heads` query heads of one new position.

    `qkv`: (1, all heads * size). `kv`: (2 * key heads, capacity, size), keys, then values. The
    heads attend to the positions before `position`, (1,) on the device. The new keys and values are
    rotated by their row of `cos` and `sin`, and stored. The host never needs the position.
    """
    key_heads, capacity, size = kv.shape[0] // 2, kv.shape[1], kv.shape[2]
    group, (splits, positions) = heads // key_heads, cut
    mixed = torch.empty((key_heads, splits, group, size), dtype=torch.float32, device=qkv.device)
    weights = torch.empty((key_heads, splits, group, 2), dtype=torch.float32, device=qkv.device)
    attend_parts_kernel[(key_heads, splits)](
        qkv, position, cos, sin, kv, mixed, weights, capacity, LOG2_E * size**-0.5,
        key_heads, group, size, GROUP, splits, positions, num_warps=4, num_stages=3,
    )  # fmt: skip
    y = torch.empty((1, heads * size), dtype=qkv.dtype, device=qkv.device)
    attend_sum_kernel[(heads,)](mixed, weights, y, group, size, splits, num_warps=4)
    return y


class KernelStep:
    """One token through all layers: six launches a layer. See `decoder.DecodeStep`."""

    def __call__(self, decoder: Decoder, x: Tensor, position: Tensor, cache: Cache) -> Tensor:
        """Compute the state of a (1, hidden) embedding. `position` (1,) stays on the device."""
        product, eps = self.product, decoder.eps
        for number, layer in enumerate(decoder.layers):
            qkv = product(x, layer.qkv, norm=layer.norm, eps=eps)
            mixed = attend(qkv, position, decoder.cos, decoder.sin, cache.kv[number], decoder.heads)
            x = product(mixed, layer.out, added=x)
            h = product(x, layer.gate_up, norm=layer.mlp_norm, eps=eps, gated=True)
            x = product(h, layer.down, added=x)
        return x

    def product(self, x: Tensor, weight: Any, **more: Any) -> Tensor:
        """Compute `product` with a weight of any type."""
        if isinstance(weight, Fp8Weight):
            return product(x, weight.values, weight.scales, **more)
        return product(x, weight, **more)
