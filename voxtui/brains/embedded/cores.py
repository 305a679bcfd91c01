"""As many cores for the chat model as other programs leave it.

Its threads wait for each other many times in a token; one that has no core holds up all of them.
Beside a program that keeps one of two cores busy, a token takes 62 ms with two threads and 49 with
one; alone 37 and 48 (docs/latency.md, "Beside a busy program").

The runtime fixes the number of its threads when it loads. But its OpenMP (GCC's libgomp), told to
be dynamic, counts before every operation the cores that the calling thread may use, and takes no
more. So the number is set from outside, by affinity. It would also take one less for each program
that ran in the last quarter of an hour, our own turns among them, could it read the load average.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

WINDOW_SECONDS = 0.25
"""The cores are watched at least so long before their number changes: the system counts 10 ms."""

TICKS = os.sysconf("SC_CLK_TCK")
"""The unit of /proc/stat, of a second."""


@dataclass(frozen=True, slots=True)
class Look:
    """Seconds worked up to `at`: by each core, and by our two processes."""

    at: float
    cores: dict[int, float]
    ours: float


class Cores:
    """The cores that the process `pid` may use, which has called `hide_load`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._all = sorted(os.sched_getaffinity(0))
        self._given = len(self._all)
        self._last: Look | None = None

    def follow(self) -> None:
        """Leave a core to others for each that they kept busy since the last look.

        Half a core counts as one: from there on a token is faster without it. One is always kept.
        """
        before = self._last
        if before is not None and time.monotonic() - before.at < WINDOW_SECONDS:
            return
        try:
            self._last = now = self._look()
        except (OSError, KeyError):  # it has ended, or the system does not tell
            return
        if before is None:
            return
        busy = {core: now.cores[core] - before.cores[core] for core in self._all}
        others = (sum(busy.values()) - (now.ours - before.ours)) / (now.at - before.at)
        given = max(1, len(self._all) - max(0, round(others)))
        if given != self._given:
            self.give(sorted(self._all, key=busy.__getitem__)[:given])

    def give(self, cores: list[int]) -> None:
        """Keep the process to these."""
        self._given = len(cores)
        for task in Path(f"/proc/{self._pid}/task").iterdir():
            with suppress(OSError):  # a thread that has ended
                os.sched_setaffinity(int(task.name), cores)

    def _look(self) -> Look:
        clock = ctypes.c_int()
        if error := _libc().clock_getcpuclockid(self._pid, ctypes.byref(clock)):
            raise OSError(error, os.strerror(error))
        ours = time.process_time() + time.clock_gettime(clock.value)
        worked = dict[int, float]()
        for line in Path("/proc/stat").read_text().splitlines():
            name, *ticks = line.split()
            if name.startswith("cpu") and name != "cpu":
                user, nice, system, _idle, _iowait, *rest = map(int, ticks)
                # `rest` are interrupts and what a hypervisor took; then guests, counted in `user`.
                worked[int(name[3:])] = (user + nice + system + sum(rest[:3])) / TICKS
        return Look(time.monotonic(), {core: worked[core] for core in self._all}, ours)


# linux/audit.h and the system call tables: the architecture, `seccomp` and `sysinfo`.
CALLS = {"x86_64": (0xC000003E, 317, 99), "aarch64": (0xC00000B7, 277, 179)}

# linux/prctl.h, linux/seccomp.h and linux/bpf_common.h.
NO_NEW_PRIVILEGES = 38
SET_FILTER, ACTION_AVAILABLE = 1, 2
ALL_THREADS, KEEP_SPECULATION = 1, 4
ALLOW, FAIL = 0x7FFF0000, 0x00050000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_AT, ARCHITECTURE_AT = 0, 4


def can_hide_load() -> bool:
    """Whether `hide_load` works here: Linux, on the machines there is a runtime for."""
    if platform.system() != "Linux" or platform.machine() not in CALLS:
        return False
    _, seccomp, _ = CALLS[platform.machine()]
    action = ctypes.c_uint32(FAIL)
    return _libc().syscall(seccomp, ACTION_AVAILABLE, 0, ctypes.byref(action)) == 0


def hide_load() -> None:
    """From now on `sysinfo` fails in this process, and with it `getloadavg`. For good."""
    architecture, seccomp, sysinfo = CALLS[platform.machine()]
    steps = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_IF_EQUAL, 0, 3, architecture),
        (LOAD, 0, 0, NUMBER_AT),
        (JUMP_IF_EQUAL, 0, 1, sysinfo),
        (RETURN, 0, 0, FAIL | errno.ENOSYS),
        (RETURN, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = _libc()
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    libc.syscall(seccomp, SET_FILTER, ALL_THREADS | KEEP_SPECULATION, program)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
