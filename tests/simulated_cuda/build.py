"""Build the environment of the simulated CUDA device: python -m tests.simulated_cuda.build

Needs gcc, binutils, the project's own environment, and 2 GB of disk. It installs the CUDA build of
torch without its libraries: what torch links to is made here. Everything else is taken from the
environment that runs this module.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.simulated_cuda import ENVIRONMENT, LIBRARIES

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
TORCH, TRITON = "torch===2.13.0", "triton==3.7.1"
"""Three signs, because two also accept the build for CPUs."""

HEADERS = ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88")
CUDNN = 92000
"""The version that this torch was built with, and asks for."""

OURS = ("libcudart.so.13", "libcuda.so.1", "libnvidia-ml.so.1")
THEIRS = re.compile(r"lib(cu(?!dart|da\.)|nccl|nvrtc|nvshmem|nvJit|nvToolsExt)")
SYMBOLS = re.compile(
    r"(cu[A-Z]|cu(blas|da|dnn|fft|pti|rand|solver|sparse)|nccl|nvrtc|nvshmem|__cuda)"
)

ENTRY_POINT = "[torch.backends]\nsimulated_cuda = tests.simulated_cuda.operations:load\n"


def run(*command: object) -> str:
    return subprocess.run(
        [str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main() -> None:
    """Build it from nothing."""
    if missing := [name for name in ("gcc", "readelf", "nm") if shutil.which(name) is None]:
        raise SystemExit(f"{missing[0]} is missing. Install gcc and binutils.")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    run(sys.executable, "-m", "venv", "--without-pip", ENVIRONMENT)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = ENVIRONMENT / "lib" / version / "site-packages"
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target")
    run(*install, packages, TORCH, TRITON)
    headers = ENVIRONMENT / "headers"
    run(*install, headers, *HEADERS)
    (packages / "project.pth").write_text(f"{REPOSITORY}\n{sysconfig.get_path('purelib')}\n")
    entry = packages / "simulated_cuda-1.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: simulated_cuda\nVersion: 1\n")
    (entry / "entry_points.txt").write_text(ENTRY_POINT)
    build_libraries(packages / "torch" / "lib", headers / "nvidia" / "cu13" / "include")


def build_libraries(torch: Path, headers: Path) -> None:
    """Build our runtime, and a library for each other one that torch links to."""
    LIBRARIES.mkdir(exist_ok=True)
    compiler = ("gcc", "-shared", "-fPIC", "-O1")
    runtime, *others = (LIBRARIES / name for name in OURS)
    run(*compiler, "-I", headers, "-o", runtime, HERE / "runtime.c", "-lpthread")
    for other in others:
        other.unlink(missing_ok=True)
        other.symlink_to(runtime.name)
    libraries = sorted(torch.glob("lib*.so"))
    needed = {
        found
        for library in libraries
        for found in re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library))
        if THEIRS.match(found)
    }
    asked = {
        line.split()[-1].partition("@")[0]
        for line in run("nm", "-D", "--undefined-only", *libraries).splitlines()
        if line.strip() and SYMBOLS.match(line.split()[-1])
    }
    here = {line.split()[-1] for line in run("nm", "-D", "--defined-only", runtime).splitlines()}
    source = LIBRARIES / "refusing.c"
    source.write_text(refusing(sorted(asked - here)))
    first, *rest = sorted(needed)
    run(*compiler, "-o", LIBRARIES / first, source)
    for name in rest:
        (LIBRARIES / name).unlink(missing_ok=True)
        (LIBRARIES / name).symlink_to(first)


def refusing(names: list[str]) -> str:
    """Return C that says on stderr which function was called, and fails."""
    made = [
        f'int {name}(void) {{ return refuse("{name}"); }}'
        for name in names
        if name != "cudnnGetVersion"
    ]
    head = """#include <stdio.h>
static int refuse(const char *name) {
    fprintf(stderr, "simulated CUDA: %s is not there\\n", name);
    return 801;
}
"""
    return head + f"long cudnnGetVersion(void) {{ return {CUDNN}; }}\n" + "\n".join(made) + "\n"


if __name__ == "__main__":
    main()
