"""One row times a weight of e4m3, in Triton: each byte is read once and converted on the way.

Not measured: no GPU has run it. It is held equal to the plain product by a test on a CPU.
"""

# Triton comes with torch's builds for CUDA only, and is not typed.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false, reportMissingParameterType=false
# pyright: reportUntypedFunctionDecorator=false, reportIndexIssue=false
# ruff: noqa: ANN001, ANN202, N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 4, 1024
"""Of a block. The smallest of Voxtral's products is 3072 rows: 768 blocks for some 130 SMs."""


@triton.jit
def _single(
    x, values, scales, y, rows, columns: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = column < columns
        part = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(
            values + row[:, None] * columns + column[None, :],
            mask=(row < rows)[:, None] & inside[None, :],
            other=0.0,
        )
        total += weight.to(tl.float32) * part[None, :]
    found = tl.sum(total, axis=1) * tl.load(scales + row, mask=row < rows, other=0.0)
    tl.store(y + row, found.to(y.dtype.element_ty), mask=row < rows)


def single(x: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    """(1, in) by (out, in) values of e4m3 with (out,) scales to (1, out), summed in float32."""
    rows, columns = values.shape
    y = torch.empty((1, rows), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(rows, ROWS),)
    _single[grid](x, values, scales, y, rows, columns, ROWS, COLUMNS, num_warps=4)
    return y
