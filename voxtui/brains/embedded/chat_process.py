"""The chat model of the embedded brain: llama.cpp in a process of its own, and its prompts.

llama.cpp holds the interpreter's lock while it loads. In this process that would be six seconds in
which no key is answered and no sound is captured. In a process of its own a crash, such as running
out of memory, costs one turn. The model file is the user's choice, so the process gets no secrets.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from threading import Event as Flag

from voxtui.brains.prompting import after_clock
from voxtui.errors import ModelError
from voxtui.models.store import NEVER, Stopped
from voxtui.settings.schema import Sampling
from voxtui.storage.temporary_folders import temporary_folder

SERVE = """
import sys
from multiprocessing.connection import Connection
from voxtui.brains.embedded.chat_server import serve
serve(Connection(int(sys.argv[1])))
"""
"""Code of the process. It is not started by the `multiprocessing` module, because that starts a
second process to watch the first one, with the screen's standard error."""

FEWEST_READ = 4
"""Minimum number of tokens of a batch whose time is measured."""

BATCH = 32
"""Number of tokens of a prompt that are evaluated at once. A larger one takes less time per token,
but the next prompt waits for its end after a cancel: 0.5 to 0.8 s, at most 1.9 s beside other
programs, mostly while somebody speaks it."""

RECENT = 5
"""Number of batches, and of tokens, whose median counts: other programs slow some of them down."""

SOCKET = "chat.sock"

BEAT_SECONDS = 0.1

SPINS = "300"
"""Polls of an OpenMP thread before it sleeps until the next thread arrives. OpenMP's default of
300,000 is hardly faster on free cores, and much slower if another program is busy."""

ENVIRONMENT = frozenset(
    ("DYLD_LIBRARY_PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "TMPDIR")
)
ENVIRONMENT_PREFIXES = ("GGML_", "GOMP_", "LC_", "OMP_")
"""Prefixes of variables that the process gets. Any other one may be secret."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to the process: load the file `path`, then bring `prefix` into the cache.

    All prompts begin with `prefix`; `prefix_directory` stores its state for the next start.
    `grammar` (GBNF) limits all replies, unless it is empty. `batch` is the number of tokens that
    are evaluated at once.
    """

    path: Path
    context_tokens: int
    prefix: str = ""
    prefix_directory: Path | None = None
    grammar: str = ""
    batch: int = BATCH
    tool_prefix: str = ""
    """the beginning of all questions about tools; empty without tools"""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Evaluate `prompt`, then generate up to `max_tokens` (0: only evaluate)."""

    prompt: str
    sampling: Sampling
    max_tokens: int
    ignore_end: bool = False
    """whether the model must not end its reply"""
    json_schema: str = ""
    """the JSON schema of the reply, instead of the grammar; empty for none"""
    grammar: str | None = None
    """the grammar of this reply; None for that of Setup"""
    bias: tuple[str, float] | None = None
    """a token, and what is added to its logit"""


@dataclass(frozen=True, slots=True)
class Generated:
    """One token. Its text is empty for a control token and for a part of a character."""

    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A batch of the prompt was evaluated: `done` of all tokens."""

    done: int
    total: int


class Speed:
    """The usual seconds a token of reading a prompt and of writing a reply; 0 before the first."""

    def __init__(self) -> None:
        self._read, self._wrote = deque[float](maxlen=RECENT), deque[float](maxlen=RECENT)

    @property
    def reading(self) -> float:
        return median(self._read or [0.0])

    @property
    def writing(self) -> float:
        return median(self._wrote or [0.0])

    def read(self, tokens: float, seconds: float) -> None:
        """Take note of a batch of a prompt. A few tokens take as long as several."""
        if tokens >= FEWEST_READ:
            self._read.append(seconds / tokens)

    def wrote(self, seconds: float) -> None:
        """Take note of a token; negative seconds for the first one of a reply."""
        if seconds > 0:
            self._wrote.append(seconds)


class Signal(Enum):
    LOADED = auto()
    STOP = auto()
    STOPPED = auto()
    DONE = auto()


class Llama:
    """A chat model in a process of its own, from `load` to `close`.

    It reuses its KV cache for a prompt with the same beginning as an earlier one. The arguments are
    those of Setup. Not thread-safe: one thread at a time may call its methods.
    """

    def __init__(
        self,
        context_tokens: int,
        prefix: str = "",
        prefix_directory: Path | None = None,
        grammar: str = "",
        batch: int = BATCH,
    ) -> None:
        self._setup = Setup(Path(), context_tokens, prefix, prefix_directory, grammar, batch)
        self._path: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self.speed = Speed()

    @property
    def pid(self) -> int | None:
        """The process id, or None while there is no process."""
        return self._process.pid if self._process is not None else None

    def load(self, path: Path, stop: Flag = NEVER, tool_prefix: str | None = None) -> None:
        """Start the process and wait until it has loaded `path` and evaluated both prefixes.

        `tool_prefix` is that of Setup; None keeps the present one. Raises ModelError, and Stopped
        within 0.1 s once `stop` is set.
        """
        self._path = path
        if tool_prefix is not None:
            self._setup = replace(self._setup, tool_prefix=tool_prefix)
        try:
            answer = self._begin(path, stop)
        except (EOFError, OSError) as error:
            answer = _lost(path) if self._process else _not_started(error)
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Failure):
            self.close()
            raise ModelError(answer.message, answer.hint)

    def _begin(self, path: Path, stop: Flag) -> Signal | Failure:
        # llama.cpp's server requires a socket. Nobody can find it once the model is loaded.
        with temporary_folder() as folder:
            pipe = self._start(folder)
            pipe.send(replace(self._setup, path=path.absolute()))
            while not pipe.poll(BEAT_SECONDS):
                if stop.is_set():
                    raise Stopped
        return pipe.recv()

    def _start(self, folder: Path) -> Connection:
        """Start the process in `folder`, because the path of a socket must be short."""
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", SERVE, str(theirs.fileno())],
                cwd=folder,
                stdin=subprocess.PIPE,  # it ends with this pipe
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # so that it gets no Ctrl-C
                env=environment(),
            )
        return self._pipe

    @contextmanager
    def _running(self) -> Generator[Connection]:
        """Yield the pipe to the process, which is restarted if it was lost."""
        if self._path is None:
            raise ModelError("The chat model is not loaded.")
        if self._process is not None and self._process.poll() is not None:
            self.close()  # a system short of memory kills the largest process, even an idle one
        if self._pipe is None:
            self.load(self._path)
        assert self._pipe is not None
        try:
            yield self._pipe
        except (EOFError, OSError) as error:
            self.close()
            lost = _lost(self._path)
            raise ModelError(lost.message, lost.hint) from error

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            with self._process:  # closes its standard input, and waits
                self._process.kill()  # it has nothing to save
            self._process = None

    def run(
        self,
        request: ChatRequest,
        on_prefilled: Callable[[int, int], bool],
        on_token: Callable[[str], bool],
    ) -> bool:
        """Run `request`; restart a lost process first. Return True if the reply reached its end.

        `on_prefilled` is called around each batch of the prompt, with the evaluated and all tokens;
        `on_token` with the text of each token. Once either returns True the model stops; tokens
        that were sent before still arrive. Raises ModelError.
        """
        stopped, done, read_at, wrote_at = False, inf, 0.0, inf
        with self._running() as pipe:
            pipe.send(request)
            while (answer := pipe.recv()) not in (Signal.DONE, Signal.STOPPED):
                if isinstance(answer, Failure):
                    raise ModelError(answer.message, answer.hint)
                now = time.monotonic()
                if isinstance(answer, Generated):
                    self.speed.wrote(now - wrote_at)
                    wrote_at = now
                    unwanted = on_token(answer.text)
                else:
                    self.speed.read(answer.done - done, now - read_at)
                    done, read_at = answer.done, now
                    unwanted = on_prefilled(answer.done, answer.total)
                if unwanted and not stopped:
                    stopped = True
                    pipe.send(Signal.STOP)
            return answer is Signal.DONE


def environment() -> dict[str, str]:
    """Return the environment variables of the process: those of an allow-list, and our own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ENVIRONMENT or name.startswith(ENVIRONMENT_PREFIXES)
    }
    return {"GOMP_SPINCOUNT": SPINS, **kept, "PYTHONPATH": str(Path(__file__).parents[3])}


def _lost(path: Path) -> Failure:
    return Failure(
        f"The process of the chat model {path.name} ended unexpectedly: too little memory?",
        "`voxtui doctor` says how much there is.",
    )


def _not_started(error: EOFError | OSError) -> Failure:
    return Failure(f"The process of the chat model cannot be started: {error}.")


def chatml(
    instruction: str,
    exchanges: list[tuple[str, str]],
    words: str,
    clock: str = "",
    opening: str = "",
) -> str:
    """Return a ChatML prompt up to `words` of a user's turn that is still open.

    Empty sides of an exchange are left out. `clock` is the line before the words. It is complete,
    so a line break follows it even before the first word. `opening` begins each reply, also past
    ones, so that each prompt remains a prefix of the next one.
    """
    turns = [f"<|im_start|>system\n{plain(instruction)}<|im_end|>\n"]
    for user, reply in exchanges:
        if user:
            turns.append(f"{USER}{plain(user)}<|im_end|>\n")
        if reply:
            turns.append(f"<|im_start|>assistant\n{opening}{plain(reply)}<|im_end|>\n")
    return "".join(turns) + USER + after_clock(clock, plain(words))


USER = "<|im_start|>user\n"

ASK = "<|im_end|>\n<|im_start|>assistant\n"
"""Closes the user's turn and opens the reply."""


def plain(text: str) -> str:
    """Return `text` without anything that the tokenizer would read as a control token."""
    return text.replace("<|", "< |").strip()
