"""fp8 weights: e4m3 values with a scale per output channel, which halve the bytes per token.

Only the weights are rounded; products use the type of the input. A decode step reads each weight
once, so its time is proportional to their bytes. A prefill is bound by arithmetic and also has to
convert each weight to bfloat16. The audio encoder and the last layer keep their weights.
"""

# torch is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from voxtui.brains.voxtral.decoder import Decoder
from voxtui.errors import ModelError
from voxtui.models.cuda import why_not_compiled

LARGEST = 448.0
"""The largest e4m3 number."""

CAPABILITY = (8, 9)
"""The first GPUs that convert e4m3 in hardware: Ada and Hopper."""

HINT = 'Set brain.voxtral.quantization = "none".'

Product = Callable[[Tensor, Tensor, Tensor], Tensor]


class Fp8Weight:
    """Replaces an (out, in) weight wherever `functional.linear` takes one.

    torch calls `__torch_function__` of any argument that has it
    (https://docs.pytorch.org/docs/stable/notes/extending.html), so the model has no second path.
    """

    def __init__(self, weight: Tensor, single: Product | None) -> None:
        largest = weight.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12)
        self.scales = (largest / LARGEST).squeeze(1)
        self.values = (weight.float() * (LARGEST / largest)).to(torch.float8_e4m3fn)
        self.single = single

    def linear(self, x: Tensor) -> Tensor:
        """Multiply (n, in) by the weight: (n, out)."""
        if self.single is not None and x.shape[0] == 1:
            return self.single(x, self.values, self.scales)
        return dequantised_linear(x, self.values, self.scales)

    def without_kernel(self) -> Fp8Weight:
        """Return the same weight, dequantised for each product."""
        other = copy.copy(self)
        other.single = None
        return other

    def numel(self) -> int:
        return self.values.numel()

    def element_size(self) -> int:
        return self.values.element_size()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is not functional.linear:
            return NotImplemented
        x, weight = args
        return weight.linear(x)


def dequantised_linear(x: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    """Multiply by the weight in the type of `x`, which holds every e4m3 number exactly."""
    product = functional.linear(x, values.to(x.dtype))
    return (product.float() * scales).to(x.dtype)


def check(device: torch.device) -> None:
    """Raise ModelError if `device` does not support fp8, or only slowly."""
    if device.type != "cuda":
        return  # slower than without fp8; useful to compare answers
    name = torch.cuda.get_device_name(device)
    if (capability := torch.cuda.get_device_capability(device)) < CAPABILITY:
        has, needed = (".".join(map(str, version)) for version in (capability, CAPABILITY))
        raise ModelError(f"fp8 needs a GPU of compute capability {needed}; {name} has {has}.", HINT)
    if importlib.util.find_spec("triton") is None:
        raise ModelError("fp8 needs Triton, which is not installed.", HINT)


def quantise(decoder: Decoder) -> None:
    """Convert the weights of every layer, one at a time so that memory never holds both.

    Raises ModelError if `check` does, or if the kernel fails.
    """
    device = decoder.embedding.device
    check(device)
    single = _kernel(device) if device.type == "cuda" else None

    def small(weight: Tensor) -> Tensor:
        return cast("Tensor", Fp8Weight(weight, single))

    for number, layer in enumerate(decoder.layers):
        decoder.layers[number] = replace(
            layer,
            qkv=small(layer.qkv),
            out=small(layer.out),
            gate_up=small(layer.gate_up),
            down=small(layer.down),
        )


def without_kernels(decoder: Decoder) -> Decoder:
    """Return `decoder` on the same weights, where those in fp8 are dequantised for each product."""

    def plain(weight: Any) -> Any:
        return weight.without_kernel() if isinstance(weight, Fp8Weight) else weight

    other = copy.copy(decoder)
    other.layers = [
        replace(
            layer, qkv=plain(layer.qkv), out=plain(layer.out),
            gate_up=plain(layer.gate_up), down=plain(layer.down),
        )
        for layer in decoder.layers
    ]  # fmt: skip
    return other


def _kernel(device: torch.device) -> Product:
    """Return the kernel for one row, checked once. Raises ModelError if it fails or is wrong."""
    from voxtui.brains.voxtral.kernels import product

    try:
        # Drawn on the CPU, because a failed capture leaves CUDA's own generator unusable.
        x = torch.randn(1, 256).to(device, torch.bfloat16)
        weight = Fp8Weight(torch.randn(64, 256).to(device), None)
        mine, theirs = product(x, weight.values, weight.scales), weight.linear(x)
        good = torch.allclose(mine.float(), theirs.float(), rtol=2e-2, atol=2e-1)
    except Exception as error:
        raise ModelError(f"The kernel for fp8 failed: {why_not_compiled(error)}.", HINT) from error
    if not good:
        raise ModelError("The kernel for fp8 is wrong on this GPU.", HINT)
    return product
