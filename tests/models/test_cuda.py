"""Finding a GPU and a torch for it without importing torch."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchmarks.voxtral.driver import driver_version
from voxtui.errors import ModelError
from voxtui.models import cuda


def referent(pointer):
    """Return the object behind a `ctypes.byref`, which a C function would write to."""
    return getattr(pointer, "_obj")  # noqa: B009  ctypes has no public way


class Driver:
    """A fake of the CUDA driver with `gpus`: (name, bytes of memory)."""

    def __init__(self, gpus, initialised=0, version=0):
        self._gpus, self._initialised, self._version = gpus, initialised, version

    def cuDriverGetVersion(self, version):  # noqa: N802
        referent(version).value = self._version
        return 0 if self._version else 3

    def cuInit(self, flags):  # noqa: N802
        return self._initialised

    def cuDeviceGetCount(self, count):  # noqa: N802
        referent(count).value = len(self._gpus)
        return 0

    def cuDeviceGet(self, device, ordinal):  # noqa: N802
        referent(device).value = 7 + ordinal
        return 0

    def cuDeviceGetName(self, name, length, device):  # noqa: N802
        name.value = self._gpus[device.value - 7][0].encode()
        return 0

    def cuDeviceTotalMem_v2(self, memory, device):  # noqa: N802
        referent(memory).value = self._gpus[device.value - 7][1]
        return 0

    def cuDeviceGetUuid_v2(self, unique, device):  # noqa: N802
        unique[:] = bytes([device.value]) * 16
        return 0


class Monitor:
    """A fake of the driver's monitor with the free bytes of each `GPU-uuid`."""

    def __init__(self, free):
        self._free = free
        self.shut_down = False

    def nvmlInit_v2(self):  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByUUID(self, name, handle):  # noqa: N802
        names = [*self._free]
        if name.decode() not in names:
            return 6
        referent(handle).value = names.index(name.decode()) + 1
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle, memory):  # noqa: N802
        referent(memory).free = [*self._free.values()][handle.value - 1]
        return 0

    def nvmlShutdown(self):  # noqa: N802
        self.shut_down = True
        return 0


@pytest.fixture
def driver(monkeypatch):
    def install(driver, monitor=None):
        def load(name):
            if name == cuda.MONITOR and monitor is None:
                raise OSError
            return monitor if name == cuda.MONITOR else driver

        monkeypatch.setattr(cuda.ctypes, "CDLL", load)

    return install


@pytest.fixture
def torch_version(monkeypatch, tmp_path):
    def install(content):
        (tmp_path / "version.py").write_text(content)
        spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
        monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: spec)

    return install


def test_the_first_gpu_is_found_with_its_memory(driver):
    driver(Driver([("NVIDIA H200", 150_000_000_000), ("Other", 1)]))
    whole = 150_000_000_000
    assert cuda.first_gpu() == cuda.Gpu("NVIDIA H200", whole, whole)


def test_its_free_memory_is_read_from_the_monitor(driver):
    monitor = Monitor({"GPU-other": 1, "GPU-07070707-0707-0707-0707-070707070707": 3_000_000_000})
    driver(Driver([("NVIDIA H200", 150_000_000_000)]), monitor)
    assert cuda.first_gpu().free == 3_000_000_000
    assert monitor.shut_down


def test_free_memory_is_all_memory_if_the_monitor_does_not_know_the_gpu(driver):
    monitor = Monitor({"GPU-other": 1})
    driver(Driver([("NVIDIA H200", 150_000_000_000)]), monitor)
    assert cuda.first_gpu().free == 150_000_000_000
    assert monitor.shut_down


def test_a_missing_driver_is_an_error(monkeypatch):
    monkeypatch.setattr(cuda, "DRIVER", "libno-such-driver.so")
    with pytest.raises(ModelError, match="no NVIDIA driver"):
        cuda.first_gpu()


def test_a_driver_before_cuda_11_4_is_an_error_that_says_what_to_do(driver, monkeypatch):
    monkeypatch.delattr(Driver, "cuDeviceGetUuid_v2")
    driver(Driver([("Old", 24_000_000_000)]))
    with pytest.raises(ModelError, match=r"the NVIDIA driver is too old\. Update the driver"):
        cuda.check_voxtral()


@pytest.mark.parametrize("broken", [Driver([]), Driver([], initialised=100)])
def test_a_driver_without_a_gpu_is_an_error(driver, broken):
    driver(broken)
    with pytest.raises(ModelError, match="shows no GPU"):
        cuda.first_gpu()


def test_another_failure_of_the_driver_is_an_error_with_its_code(driver):
    driver(Driver([("NVIDIA H200", 1)], initialised=803))
    with pytest.raises(ModelError, match=r"failed \(CUDA error 803\)"):
        cuda.first_gpu()


def test_the_version_of_a_torch_for_cuda_is_found(torch_version):
    torch_version("__version__ = '2.13.0'\ncuda = '13.0'\n")
    assert cuda.check_torch() == "2.13.0 for CUDA 13.0"


@pytest.mark.parametrize("version", [13000, 13020, 14000, 0])
def test_a_driver_for_the_same_cuda_or_a_later_one_suits(torch_version, driver, version):
    torch_version("__version__ = '2.13.0'\ncuda = '13.2'\n")
    driver(Driver([], version=version))
    assert cuda.check_torch() == "2.13.0 for CUDA 13.2"


def test_a_driver_for_an_older_cuda_is_an_error(torch_version, driver):
    torch_version("__version__ = '2.13.0'\ncuda = '13.0'\n")
    driver(Driver([], version=12080))
    with pytest.raises(
        ModelError,
        match=r"^torch 2\.13\.0 for CUDA 13\.0 needs a newer driver; this is for 12\.8\.",
    ):
        cuda.check_torch()


def test_why_a_gpu_is_unusable_is_said_with_what_to_do(torch_version, driver):
    torch_version("__version__ = '2.13.0'\ncuda = '13.0'\n")
    driver(Driver([("NVIDIA H100", 80_000_000_000)], version=12080))
    why = cuda.why_unusable()
    assert why.startswith("torch 2.13.0 for CUDA 13.0 needs a newer driver; ")
    assert why.endswith(cuda.HOW_TO_MATCH)
    driver(Driver([("NVIDIA H100", 80_000_000_000)], version=13000))
    assert cuda.why_unusable() == ""


def test_for_a_torch_without_cuda_the_error_names_the_command(torch_version):
    torch_version("__version__ = '2.13.0+cpu'\ncuda = None\n")
    with pytest.raises(ModelError, match=r"torch 2\.13\.0\+cpu is a build without CUDA.*pip"):
        cuda.check_torch()


def test_without_torch_the_error_names_the_command(monkeypatch):
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"torch is not installed\. .* -m pip install"):
        cuda.check_torch()


@pytest.fixture
def able(driver, monkeypatch):
    """Fake a machine that can run Voxtral. A test removes one part of it."""
    driver(Driver([("NVIDIA H200", 150_000_000_000)]))
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(cuda, "check_torch", lambda: "2.13.0 for CUDA 13.0")


def test_a_machine_with_gpu_memory_and_packages_can_run_voxtral(able):
    cuda.check_voxtral()


def test_without_a_gpu_the_error_says_that_voxtral_needs_one(able, monkeypatch, driver):
    driver(Driver([]))
    with pytest.raises(
        ModelError, match=r"^Voxtral needs a GPU, and the NVIDIA driver shows no GPU\."
    ):
        cuda.check_voxtral()


def test_with_too_little_memory_the_error_has_both_figures(able, driver):
    driver(Driver([("Small", 11_900_000_000)]))
    with pytest.raises(ModelError, match=r"needs 12 GB of GPU memory; Small has 11\.9 GB"):
        cuda.check_voxtral()


def test_with_too_little_free_memory_the_error_has_both_figures(able, driver):
    monitor = Monitor({"GPU-07070707-0707-0707-0707-070707070707": 3_100_000_000})
    driver(Driver([("Big", 24_000_000_000)]), monitor)
    with pytest.raises(
        ModelError, match=r"10\.5 GB of free GPU memory; Big has 3\.1 GB left\. `nv"
    ):
        cuda.check_voxtral()


def test_a_missing_package_is_named(able, monkeypatch):
    monkeypatch.setattr(
        cuda.importlib.util, "find_spec", lambda name: None if name == "transformers" else name
    )
    with pytest.raises(ModelError, match=r"not installed \(transformers\)\. .* -m pip install"):
        cuda.check_voxtral()


def test_a_torch_without_cuda_cannot_run_voxtral(able, monkeypatch):
    def no_cuda():
        raise ModelError("torch is a build without CUDA.")

    monkeypatch.setattr(cuda, "check_torch", no_cuda)
    with pytest.raises(ModelError, match="without CUDA"):
        cuda.check_voxtral()


def test_the_checks_do_not_import_torch():
    code = (
        "import sys; from voxtui.models import cuda; from voxtui.errors import ModelError\n"
        "for check in (cuda.check_torch, cuda.first_gpu):\n"
        "    try: check()\n"
        "    except ModelError: pass\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Versioned(Monitor):
    def nvmlSystemGetDriverVersion(self, text, length):  # noqa: N802
        text.value = b"570.86.15"
        return 0


def test_the_version_of_the_driver_is_read_from_the_monitor(driver):
    monitor = Versioned({})
    driver(Driver([("A", 1)]), monitor)
    assert driver_version() == "570.86.15"
    assert monitor.shut_down
    driver(Driver([("A", 1)]))
    assert driver_version() == ""


NO_COMPILER = RuntimeError("Failed to find C compiler. Please specify via CC environment variable")


@pytest.mark.parametrize(
    ("error", "has_header", "said"),
    [
        (NO_COMPILER, True, "Triton needs a C compiler. Install gcc, then run `voxtui doctor gpu`"),
        (subprocess.CalledProcessError(1, ["gcc"]), False, "Install python3-dev (Debian, Ubuntu)"),
        (subprocess.CalledProcessError(1, ["gcc"]), True, "returned non-zero exit status 1"),
        (RuntimeError("PassManager::run failed\nmore"), False, "PassManager::run failed"),
    ],
    ids=["no compiler", "no Python.h", "another failure of the compiler", "another failure"],
)
def test_what_triton_lacks_is_named_with_the_package_to_install(
    monkeypatch, tmp_path, error, has_header, said
):
    monkeypatch.setattr(cuda.sysconfig, "get_path", lambda *_: str(tmp_path))
    if has_header:
        (tmp_path / "Python.h").touch()
    assert said in cuda.why_not_compiled(error)


@pytest.mark.parametrize("node", ["nvidiactl", "dxg"])
def test_a_gpu_is_likely_with_the_driver_of_linux_or_of_windows(monkeypatch, tmp_path, node):
    assert {path.name for path in cuda.DEVICE_NODES} == {"nvidiactl", "dxg"}
    monkeypatch.setattr(cuda, "DEVICE_NODES", [tmp_path / path.name for path in cuda.DEVICE_NODES])
    assert not cuda.is_likely()
    (tmp_path / node).touch()
    assert cuda.is_likely()
