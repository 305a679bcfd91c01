"""A decode step by kernels of our own, where they are wanted and right."""

# torch is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from voxtui.brains.voxtral.decoder import Cache, Decoder
from voxtui.brains.voxtral.fp8 import Fp8Weight
from voxtui.errors import ModelError

CAPABILITY = (8, 0)
"""The first GPUs with products of bfloat16: Ampere."""

OVERLAPPING = (9, 0)
"""The first on which a kernel can begin before the one before it has ended: Hopper."""

HINT = 'Set brain.voxtral.kernels = "none".'

PLACES, CAPACITY = 40, 64
"""Of context behind which kernels are tried, and of the cache they are tried on."""

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""As `kernels.attend`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One token through all layers: six launches a layer, or twelve with torch's products."""

    attend: Attend
    product: Callable[..., Tensor]
    """as `plain_product`"""

    def __call__(self, decoder: Decoder, x: Tensor, place: Tensor, cache: Cache) -> Tensor:
        """(1, hidden) embedding at `place` (1,) to its hidden state; how much of the cache is used
        is read on the device."""
        product, eps = self.product, decoder.eps
        for number, layer in enumerate(decoder.layers):
            qkv = product(x, layer.qkv, norm=layer.norm, eps=eps)
            mixed = self.attend(
                qkv, place, decoder.cos, decoder.sin, cache.both[number], decoder.heads
            )
            x = product(mixed, layer.out, added=x)
            h = product(x, layer.gate_up, norm=layer.mlp_norm, eps=eps, gated=True)
            x = product(h, layer.down, added=x)
        return x


def plain_product(
    x: Tensor, weight: Tensor, norm: Tensor | None = None, eps: float = 0.0,
    added: Tensor | None = None, gated: bool = False,
) -> Tensor:  # fmt: skip
    """A product, and what stands before and after it in a layer; see `kernels.product`."""
    if norm is not None:
        x = functional.rms_norm(x, (x.shape[-1],), norm, eps)
    found = functional.linear(x, weight)
    if gated:
        gate, up = found.chunk(2, dim=-1)
        found = functional.silu(gate) * up
    return found if added is None else found + added


def use(decoder: Decoder, which: Literal["attention", "all", "overlapped"]) -> None:
    """Let every step of `decoder` go through kernels: those of attention, or all of them, which may
    each begin before the one before has ended.

    They are tried once. Raises ModelError, and leaves things as they are, where there is no GPU
    that can, where Triton is missing, and where they fail or are wrong.
    """
    device = decoder.embedding.device
    if device.type != "cuda":
        raise ModelError("There is no GPU for kernels.", HINT)
    early = which == "overlapped"
    capability = OVERLAPPING if early else CAPABILITY
    if torch.cuda.get_device_capability(device) < capability:
        name, needed = torch.cuda.get_device_name(device), ".".join(map(str, capability))
        raise ModelError(
            f"The kernels need a GPU of compute capability {needed}, not {name}.", HINT
        )
    if importlib.util.find_spec("triton") is None:
        raise ModelError("The kernels need Triton, which is not installed.", HINT)
    from voxtui.brains.voxtral import kernels

    product = plain_product if which == "attention" else partial(by_kernel, early=early)
    step = Step(partial(kernels.attend, early=early), product)
    try:
        right = is_right(decoder, step)
    except Exception as error:
        raise ModelError(f"The kernels failed: {str(error).splitlines()[0]}", HINT) from error
    if not right:
        raise ModelError("The kernels are wrong on this GPU.", HINT)
    decoder.single = step


def by_kernel(
    x: Tensor, weight: Any, norm: Tensor | None = None, eps: float = 0.0,
    added: Tensor | None = None, gated: bool = False, early: bool = False,
) -> Tensor:  # fmt: skip
    """As `plain_product`, in one launch."""
    from voxtui.brains.voxtral.kernels import product

    if isinstance(weight, Fp8Weight):
        return product(x, weight.values, weight.scales, norm, eps, added, gated, early=early)
    return product(x, weight, None, norm, eps, added, gated, early=early)


def is_right(decoder: Decoder, step: Step) -> bool:
    """Whether `step` does in the first layer what torch's operations do."""
    layers, device, dtype = decoder.layers, decoder.embedding.device, decoder.embedding.dtype
    with torch.inference_mode():
        # Drawn on the CPU: a capture that failed leaves CUDA's own generator out of use.
        # Small beside what the layer adds, or rounding their sum would hide it.
        x = (torch.randn(PLACES + 1, decoder.embedding.shape[1]) / 10).to(device, dtype)
        places = torch.arange(PLACES + 1, device=device)
        plain, other = Cache(decoder, CAPACITY), Cache(decoder, CAPACITY)
        decoder.layers = layers[:1]
        try:
            decoder.run(x[:-1], places[:-1], plain, PLACES, masked=True)
            other.both.copy_(plain.both)
            wanted = decoder.run(x[-1:], places[-1:], plain, PLACES + 1, masked=False)
            found = step(decoder, x[-1:], places[-1:], other)
        finally:
            decoder.layers = layers
        # Of two sums in half precision one may be rounded up and the other down: where a layer adds
        # little, as with small random weights, that is more than what the kernels are off by.
        rounding = torch.finfo(dtype).eps * x[-1].norm()
        pairs = ((found - x[-1:], wanted - x[-1:], rounding), (other.both, plain.both, 0.0))
        return all(
            bool((mine - theirs).norm() < 2e-2 * theirs.norm() + most)
            for mine, theirs, most in pairs
        )
