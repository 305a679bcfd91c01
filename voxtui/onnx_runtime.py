from importlib import import_module
from typing import Any


def import_onnxruntime() -> Any:
    """Import onnxruntime, safe beside any other thread. Raises ImportError.

    Its extension imports a part of numpy by name. If another thread is importing numpy, each thread
    then holds the module lock that the other needs, and one import fails. An import of the whole of
    numpy waits for the other thread instead.
    """
    import_module("numpy")
    return import_module("onnxruntime")
