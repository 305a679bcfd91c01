"""A decode step through our own Triton kernels, if they are enabled and correct."""

# torch is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from voxtui.brains.voxtral.decoder import Cache, Decoder
from voxtui.brains.voxtral.fp8 import Fp8Weight
from voxtui.brains.voxtral.verdict import FastPath
from voxtui.errors import ModelError
from voxtui.models.cuda import why_not_compiled
from voxtui.settings.paths import user_folders

CAPABILITY = (8, 0)
"""The first GPUs with bfloat16 products: Ampere."""

OVERLAPPING = (9, 0)
"""The first GPUs on which a kernel can begin before the previous one has ended: Hopper."""

PLACES, CAPACITY = 40, 64
"""Context and cache capacity, in tokens, with which kernels are checked."""

Which = Literal["attention", "all", "overlapped"]
"""Kernels for attention only, for all products too, or for all with overlapping launches."""

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""See kernels.attend."""


@dataclass(frozen=True, slots=True)
class DecodeKernels:
    """One token through all layers: six launches a layer, or twelve with torch's products."""

    attend: Attend
    product: Callable[..., Tensor]
    """see `linear`"""

    def __call__(self, decoder: Decoder, x: Tensor, position: Tensor, cache: Cache) -> Tensor:
        """Compute the hidden state of a (1, hidden) embedding at `position` (1,).

        The length of the context is read on the device.
        """
        product, eps = self.product, decoder.eps
        for number, layer in enumerate(decoder.layers):
            qkv = product(x, layer.qkv, norm=layer.norm, eps=eps)
            mixed = self.attend(
                qkv, position, decoder.cos, decoder.sin, cache.kv[number], decoder.heads
            )
            x = product(mixed, layer.out, added=x)
            h = product(x, layer.gate_up, norm=layer.mlp_norm, eps=eps, gated=True)
            x = product(h, layer.down, added=x)
        return x


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


def keep_compiled_kernels() -> None:
    """Keep what Triton compiles in the user's cache folder, unless the user names another one."""
    if "TRITON_CACHE_DIR" not in os.environ:
        os.environ["TRITON_CACHE_DIR"] = str(user_folders().user_cache_path / "triton")


def kernels_of(path: FastPath) -> Which | None:
    """Return what `enable` needs for `path`; None: no kernels."""
    return None if path == "captured" else path


def enable(decoder: Decoder, which: Which) -> None:
    """Make each decode step of `decoder` use kernels: for attention only, or for all products.

    `overlapped`: each kernel begins before the previous one has ended. The kernels are checked
    once. Raises ModelError, and changes nothing, if the GPU or Triton is missing or too old, or if
    a kernel fails or is wrong.
    """
    device = decoder.embedding.device
    if device.type != "cuda":
        raise ModelError("There is no GPU for kernels.")
    early = which == "overlapped"
    capability = OVERLAPPING if early else CAPABILITY
    if torch.cuda.get_device_capability(device) < capability:
        name, needed = torch.cuda.get_device_name(device), ".".join(map(str, capability))
        raise ModelError(f"The kernels need a GPU of compute capability {needed}, not {name}.")
    if importlib.util.find_spec("triton") is None:
        raise ModelError("The kernels need Triton, which is not installed.")
    from voxtui.brains.voxtral import kernels

    product = linear if which == "attention" else partial(by_kernel, early=early)
    step = DecodeKernels(partial(kernels.attend, early=early), product)
    try:
        right = is_right(decoder, step)
    except Exception as error:
        raise ModelError(f"The kernels failed: {why_not_compiled(error)}.") from error
    if not right:
        raise ModelError("The kernels are wrong on this GPU.")
    decoder.decode_step = step


def by_kernel(
    x: Tensor, weight: Any, norm: Tensor | None = None, eps: float = 0.0,
    added: Tensor | None = None, gated: bool = False, early: bool = False,
) -> Tensor:  # fmt: skip
    """Compute the same as `linear`, in one launch."""
    from voxtui.brains.voxtral.kernels import product

    if isinstance(weight, Fp8Weight):
        return product(x, weight.values, weight.scales, norm, eps, added, gated, early=early)
    return product(x, weight, None, norm, eps, added, gated, early=early)


def is_right(decoder: Decoder, step: DecodeKernels) -> bool:
    """Return True if `step` equals torch's operations in the first layer."""
    layers, device, dtype = decoder.layers, decoder.embedding.device, decoder.embedding.dtype
    with torch.inference_mode():
        # Drawn on the CPU, because a failed capture leaves CUDA's own generator unusable.
        # Small beside what the layer adds: else rounding of their sum would hide errors.
        x = (torch.randn(PLACES + 1, decoder.embedding.shape[1]) / 10).to(device, dtype)
        positions = torch.arange(PLACES + 1, device=device)
        plain, other = Cache(decoder, CAPACITY), Cache(decoder, CAPACITY)
        decoder.layers = layers[:1]
        try:
            decoder.run(x[:-1], positions[:-1], plain, PLACES, masked=True)
            other.kv.copy_(plain.kv)
            wanted = decoder.run(x[-1:], positions[-1:], plain, PLACES + 1, masked=False)
            found = step(decoder, x[-1:], positions[-1:], other)
        finally:
            decoder.layers = layers
        # In half precision one sum may be rounded up and the other down. If a layer adds little, as
        # with small random weights, this rounding exceeds the error of the kernels.
        rounding = torch.finfo(dtype).eps * x[-1].norm()
        pairs = ((found - x[-1:], wanted - x[-1:], rounding), (other.kv, plain.kv, 0.0))
        return all(
            bool((mine - theirs).norm() < 2e-2 * theirs.norm() + most)
            for mine, theirs, most in pairs
        )
