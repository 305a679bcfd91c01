import ctypes
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

M_ARENA_MAX = -8
"""glibc's number of the parameter of `mallopt`: the maximum number of its arenas."""


def import_onnxruntime() -> Any:
    """Import onnxruntime, safe beside any other thread. Raises ImportError.

    Its extension imports a part of numpy by name. If another thread is importing numpy, each thread
    then holds the module lock that the other needs, and one import fails. An import of the whole of
    numpy waits for the other thread instead.
    """
    import_module("numpy")
    return import_module("onnxruntime")


def inference_session(path: Path) -> Any:
    """Load a model whose inputs differ in length, for one core. Raises what onnxruntime raises.

    By default a session stores a plan of each length, and its arena doubles and never shrinks. And
    glibc has an arena for each thread, which retains the largest sound of that thread.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    # Its threads poll for each other, so two are slower than one if any other program runs.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
