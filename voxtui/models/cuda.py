"""Whether this machine can run the models for a GPU, found out without importing torch."""

from __future__ import annotations

import ctypes
import importlib.util
import runpy
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxtui.errors import ModelError, how_to_install

DRIVER = "libcuda.so.1"

MONITOR = "libnvidia-ml.so.1"

VOXTRAL_MEMORY = 12e9
"""Bytes of GPU memory Voxtral should find, counted: 9.4 GB of weights in bfloat16, 0.6 GB of cache
for five spoken turns, 1 GB for CUDA and the work of a turn, 0.5 GB for Kokoro, and some reserve."""

VOXTRAL_FREE = 10.5e9
"""Of these, bytes that must be free as it loads: CUDA and Kokoro have taken theirs by then."""

HOW_TO_GET_CUDA = "A CUDA build of it: pip install --force-reinstall torch"

VOXTRAL_PACKAGES = ("torch", "transformers", "mistral_common")

DEVICE_NODES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""What an NVIDIA driver shows of itself, on Linux and inside Windows."""


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    memory: int
    """bytes"""
    free: int
    """bytes that nobody uses, or `memory` where that cannot be found out"""


def is_likely() -> bool:
    """Whether asking `first_gpu` is worth its time. Takes none itself."""
    return any(node.exists() for node in DEVICE_NODES)


def check_voxtral() -> None:
    """Raises ModelError unless the GPU, its memory and the packages for Voxtral are there."""
    try:
        gpu = first_gpu()
    except ModelError as error:
        reason = error.message[0].lower() + error.message[1:]
        raise ModelError(f"Voxtral needs a GPU, and {reason}") from error
    if gpu.memory < VOXTRAL_MEMORY:
        has, needed = gpu.memory / 1e9, VOXTRAL_MEMORY / 1e9
        raise ModelError(f"Voxtral needs {needed:g} GB of GPU memory; {gpu.name} has {has:.1f} GB.")
    if gpu.free < VOXTRAL_FREE:
        free, needed = gpu.free / 1e9, VOXTRAL_FREE / 1e9
        raise ModelError(
            f"Voxtral needs {needed:g} GB of free GPU memory; {gpu.name} has {free:.1f} GB left.",
            "`nvidia-smi` says what has the rest.",
        )
    check_packages()
    check_torch()


def check_packages() -> None:
    """Raises ModelError if one that Voxtral needs is missing."""
    lacking = [name for name in VOXTRAL_PACKAGES if importlib.util.find_spec(name) is None]
    if lacking:
        raise ModelError(
            f"Voxtral is not installed ({', '.join(lacking)}).", how_to_install("voxtral")
        )


def first_gpu() -> Gpu:
    """The device that CUDA calls its first. May take a second. Raises ModelError with the reason.

    Asks the driver (https://docs.nvidia.com/cuda/cuda-driver-api), which opens no context for this.
    """
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError as error:
        raise ModelError("There is no NVIDIA driver here.") from error
    count, device, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(256)
    _succeed(driver.cuInit(0))
    _succeed(driver.cuDeviceGetCount(ctypes.byref(count)))
    if not count.value:
        raise ModelError("The NVIDIA driver shows no GPU.")
    _succeed(driver.cuDeviceGet(ctypes.byref(device), 0))
    _succeed(driver.cuDeviceGetName(name, len(name), device))
    _succeed(driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device))
    unique = (ctypes.c_ubyte * 16)()
    _succeed(driver.cuDeviceGetUuid_v2(unique, device))
    free = _free(uuid.UUID(bytes=bytes(unique)))
    return Gpu(
        name.value.decode(errors="replace"), memory.value, memory.value if free is None else free
    )


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def _free(device: uuid.UUID) -> int | None:
    """Bytes of memory that nobody uses, or None where the driver's monitor does not tell.

    https://docs.nvidia.com/deploy/nvml-api: it needs no context on the device, as CUDA would, and
    numbers the devices in its own way. A part of a shared device (MIG) is named otherwise.
    """
    try:
        monitor = ctypes.CDLL(MONITOR)
    except OSError:
        return None
    if monitor.nvmlInit_v2():
        return None
    handle, memory = ctypes.c_void_p(), _Memory()
    try:
        for kind in (b"GPU", b"MIG"):
            name = kind + b"-" + str(device).encode()
            if monitor.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)):
                continue
            if not monitor.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
                return memory.free
    finally:
        monitor.nvmlShutdown()
    return None


def check_torch() -> str:
    """Which torch is installed, in words. Raises ModelError if it is no build for CUDA."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModelError("torch is not installed.", how_to_install("voxtral"))
    try:
        built: dict[str, Any] = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    except OSError:
        built = {}
    if not built.get("cuda"):
        version = built.get("__version__", "of unknown version")
        raise ModelError(f"torch {version} is a build without CUDA.", HOW_TO_GET_CUDA)
    return f"{built['__version__']} for CUDA {built['cuda']}"


def _succeed(result: int) -> None:
    """CUDA_ERROR_NO_DEVICE is 100; others say that driver and hardware do not get along."""
    if result == 100:
        raise ModelError("The NVIDIA driver shows no GPU.")
    if result:
        raise ModelError(f"The NVIDIA driver does not answer (CUDA error {result}).")
