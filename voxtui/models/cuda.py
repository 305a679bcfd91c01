"""Check whether this machine can run models on a GPU, without importing torch."""

from __future__ import annotations

import ctypes
import importlib.util
import runpy
import subprocess
import sysconfig
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxtui.errors import ModelError, NoGpu, first_line, how_to_install

DRIVER = "libcuda.so.1"

MONITOR = "libnvidia-ml.so.1"

VOXTRAL_MEMORY = 12e9
"""GPU memory that Voxtral needs, in bytes: 9.4 GB of weights in bfloat16, 0.6 GB of cache for five
spoken turns, 1 GB for CUDA and the work of a turn, 0.5 GB for Kokoro, and a reserve of 0.5 GB."""

VOXTRAL_FREE = 10.5e9
"""Free bytes that Voxtral needs when it loads, after CUDA and Kokoro have taken theirs."""

HOW_TO_MATCH = (
    "Update the driver, or install a torch for an older CUDA: https://pytorch.org/get-started"
)

DEVICE_NODES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""Device files of an NVIDIA driver: on Linux, and on Linux within Windows (WSL 2)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    memory: int
    """the memory in bytes"""
    free: int
    """the free memory in bytes; equal to `memory` if the driver does not report it"""


def is_likely() -> bool:
    """Return True if `first_gpu` may find a GPU. Takes microseconds."""
    return any(node.exists() for node in DEVICE_NODES)


def check_voxtral() -> None:
    """Raise ModelError unless the GPU, its memory and the packages suffice for Voxtral."""
    try:
        gpu = first_gpu()
    except ModelError as error:
        reason = error.message[0].lower() + error.message[1:]
        raise type(error)(f"Voxtral needs a GPU, and {reason}", error.hint) from error
    if gpu.memory < VOXTRAL_MEMORY:
        has, needed = gpu.memory / 1e9, VOXTRAL_MEMORY / 1e9
        raise ModelError(f"Voxtral needs {needed:g} GB of GPU memory; {gpu.name} has {has:.1f} GB.")
    if gpu.free < VOXTRAL_FREE:
        free, needed = gpu.free / 1e9, VOXTRAL_FREE / 1e9
        raise ModelError(
            f"Voxtral needs {needed:g} GB of free GPU memory; {gpu.name} has {free:.1f} GB left.",
            "`nvidia-smi` lists the programs that use the rest.",
        )
    check_packages()
    check_torch()


def check_packages() -> None:
    names = ("torch", "transformers", "mistral_common")
    lacking = [name for name in names if importlib.util.find_spec(name) is None]
    if lacking:
        raise ModelError(
            f"Voxtral is not installed ({', '.join(lacking)}).", how_to_install("voxtral")
        )


def first_gpu() -> Gpu:
    """Return the first device of CUDA. Takes up to a second. Raises ModelError if there is none."""
    # Asks the driver without opening a context: https://docs.nvidia.com/cuda/cuda-driver-api
    try:
        driver = ctypes.CDLL(DRIVER)
        get_uuid = driver.cuDeviceGetUuid_v2  # since CUDA 11.4, after all the others
    except OSError as error:
        raise NoGpu(f"There is no NVIDIA driver ({DRIVER}).") from error
    except AttributeError as error:
        raise ModelError("The NVIDIA driver is too old.", HOW_TO_MATCH) from error
    count, device, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(256)
    _succeed(driver.cuInit(0))
    _succeed(driver.cuDeviceGetCount(ctypes.byref(count)))
    if not count.value:
        raise NoGpu("The NVIDIA driver shows no GPU.")
    _succeed(driver.cuDeviceGet(ctypes.byref(device), 0))
    _succeed(driver.cuDeviceGetName(name, len(name), device))
    _succeed(driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device))
    unique = (ctypes.c_ubyte * 16)()
    _succeed(get_uuid(unique, device))
    free = _free(uuid.UUID(bytes=bytes(unique)))
    return Gpu(
        name.value.decode(errors="replace"), memory.value, memory.value if free is None else free
    )


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def _free(device: uuid.UUID) -> int | None:
    """Return the free bytes of memory, or None if the driver's monitor does not report them.

    The monitor needs no context on the device, unlike CUDA. It finds the device by UUID, because
    it numbers devices differently: https://docs.nvidia.com/deploy/nvml-api
    """
    try:
        monitor = ctypes.CDLL(MONITOR)
    except OSError:
        return None
    if monitor.nvmlInit_v2():
        return None
    handle, memory = ctypes.c_void_p(), _Memory()
    name = f"GPU-{device}".encode()
    failed = monitor.nvmlDeviceGetHandleByUUID(
        name, ctypes.byref(handle)
    ) or monitor.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    monitor.nvmlShutdown()
    return None if failed else memory.free


def check_torch() -> str:
    """Return the versions of torch and CUDA. Raise ModelError if torch cannot use a GPU here.

    A torch without CUDA, or for a newer CUDA than the driver's, finds no GPU and would load Voxtral
    on the CPU.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModelError("torch is not installed.", how_to_install("voxtral"))
    try:
        built: dict[str, Any] = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    except OSError:
        built = {}
    version, cuda = built.get("__version__", "(unknown version)"), built.get("cuda")
    if not cuda:
        hint = "For a CUDA build: pip install --force-reinstall torch"
        raise ModelError(f"torch {version} is a build without CUDA.", hint)
    found = f"{version} for CUDA {cuda}"
    known = _newest_cuda()
    # A driver runs each minor version of its CUDA: https://docs.nvidia.com/deploy/cuda-compatibility
    if known and known[0] < int(cuda.partition(".")[0]):
        is_of = ".".join(map(str, known))
        raise ModelError(f"torch {found} needs a newer driver; this is for {is_of}.", HOW_TO_MATCH)
    return found


def why_not_compiled(error: Exception) -> str:
    """Return why Triton compiled no kernel, and what to do; else the first line of `error`."""
    # Triton compiles some C on each machine: https://github.com/triton-lang/triton
    again = "then run `voxtui doctor gpu`"
    if "Failed to find C compiler" in str(error):
        return f"Triton needs a C compiler. Install gcc, {again}"
    headers = Path(sysconfig.get_path("include", "posix_prefix"))
    if isinstance(error, subprocess.CalledProcessError) and not (headers / "Python.h").exists():
        return (
            f"Triton needs Python.h, which {headers} lacks. Install python3-dev (Debian, Ubuntu) "
            f"or python3-devel (Fedora), {again}"
        )
    return first_line(error)


def why_unusable() -> str:
    """Return why torch can use no GPU here, and what to do; empty if that is unknown."""
    try:
        first_gpu()
        check_torch()
    except ModelError as error:
        return str(error)
    return ""


def _newest_cuda() -> tuple[int, int] | None:
    """Return the newest CUDA version of the driver, such as (13, 0), or None if unknown."""
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL(DRIVER).cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None
    return None if failed else (version.value // 1000, version.value % 1000 // 10)


def _succeed(result: int) -> None:
    if result == 100:  # CUDA_ERROR_NO_DEVICE
        raise NoGpu("The NVIDIA driver shows no GPU.")
    if result:
        raise ModelError(f"The NVIDIA driver failed (CUDA error {result}).")
