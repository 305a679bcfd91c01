"""The computation of our kernel for products, by torch's own operations."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def linear(
    x: Tensor, weight: Tensor, norm: Tensor | None = None, eps: float = 0.0,
    added: Tensor | None = None, gated: bool = False,
) -> Tensor:  # fmt: skip
    """Multiply, with the operations before and after it in a layer. See kernels.product."""
    if norm is not None:
        x = functional.rms_norm(x, (x.shape[-1],), norm, eps)
    found = functional.linear(x, weight)
    if gated:
        gate, up = found.chunk(2, dim=-1)
        found = functional.silu(gate) * up
    return found if added is None else found + added
