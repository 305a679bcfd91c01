"""The embedded chat model: a GGUF run by llama.cpp in a process of its own, ChatML prompts.

llama.cpp loads holding this interpreter's lock: six seconds in which no key would be answered and
no sound taken. In another process it costs nobody anything, and what happens to it there, such as
running out of memory, costs one turn.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from voxtui.brains.embedded.cores import Cores, can_hide_load, hide_load
from voxtui.errors import ModelError, how_to_install
from voxtui.settings.schema import Sampling

PREFILL_BATCH = 3
"""Tokens evaluated at once. llama.cpp multiplies groups of four, and batches of eight, by other
kernels than a single token; the last digits differ, and near a tie another word wins. In threes a
prompt has the same numbers in whatever pieces it was evaluated, so the reply is the same."""

SERVE = """
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from voxtui.brains.embedded.chat import serve
serve(Connection(int(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3]))
"""
"""What the process runs. The `multiprocessing` module would start it, and a second one to watch it,
with the standard error of a screen that has none."""

REUSED_RUN = 16
"""Tokens. What stood elsewhere in the last prompt is moved to its new place, if at least so many in
a row are the same. The oldest turn of a long conversation is forgotten in every turn, and to read
the 850 tokens after it again would take 14 s on two cores; to move them takes none. Only then: what
was moved is not what it would be if read again, and words of this turn may still change."""

SOCKET = "chat.sock"

BEAT_SECONDS = 0.1

SPINS = "300"
"""How often a chat thread looks again before it sleeps for its sibling. OpenMP's own 300,000 are
hardly faster on free cores, and let an answer collapse beside another busy program."""


@dataclass(frozen=True, slots=True)
class Request:
    """Evaluate `prompt`, then generate up to `max_tokens` (0: only evaluate)."""

    prompt: str
    sampling: Sampling
    max_tokens: int
    past_end: bool


@dataclass(frozen=True, slots=True)
class Failure:
    message: str
    hint: str = ""


class Signal(Enum):
    LOADED = auto()
    PREFILLED = auto()
    STOP = auto()
    STOPPED = auto()
    DONE = auto()


class Llama:
    """One sequence with its KV cache, reused where the next prompt says the same.

    Not thread-safe: `load`, `run` and `close` belong to one thread at a time.
    """

    def __init__(self, context_tokens: int) -> None:
        self._context_tokens = context_tokens
        self._path: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._cores: Cores | None = None

    def load(self, path: Path, beat: Callable[[], object] = lambda: None) -> None:
        """Calls `beat` now and then; what it raises ends the loading. Raises ModelError."""
        self._path = path
        try:
            answer = self._begin(path, beat)
        except (EOFError, OSError) as error:
            answer = _lost(path) if self._process else _not_started(error)
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Failure):
            self.close()
            raise ModelError(answer.message, answer.hint)

    def _begin(self, path: Path, beat: Callable[[], object]) -> Signal | Failure:
        # The server must listen somewhere: on a socket whose folder is gone before anybody finds
        # it. The socket comes before the model is loaded: nothing is left if we end meanwhile.
        with tempfile.TemporaryDirectory(prefix="voxtui-") as folder:
            pipe = self._start(path, folder)
            socket = Path(folder, SOCKET)
            while not socket.exists() and not pipe.poll(BEAT_SECONDS):
                beat()
        while not pipe.poll(BEAT_SECONDS):
            beat()
        return pipe.recv()

    def _start(self, path: Path, folder: str) -> Connection:
        """The process works in `folder`: a socket's whole path must not be long."""
        self._pipe, theirs = Pipe()
        follows = can_hide_load()
        with theirs:
            arguments = [str(theirs.fileno()), path.absolute(), str(self._context_tokens)]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", SERVE, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C is not for it
                env={"GOMP_SPINCOUNT": SPINS}
                | ({"OMP_DYNAMIC": "true"} if follows else {})
                | os.environ
                | {"PYTHONPATH": str(Path(__file__).parents[3])},
            )
        if follows:
            self._cores = Cores(self._process.pid)
        return self._pipe

    def run(
        self,
        prompt: str,
        sampling: Sampling,
        max_tokens: int,
        on_prefilled: Callable[[], bool],
        on_text: Callable[[str], bool],
        *,
        past_end: bool = False,
    ) -> bool:
        """Evaluate `prompt`, then generate up to `max_tokens` (0: only evaluate).

        `on_prefilled` is called around each batch of the prompt, `on_text` with each token's text;
        once either returns True nothing more is begun, but tokens on their way still come. Returns
        whether the reply came to its end, which it may do even then. `past_end` keeps the model
        from ending it. Loads anew if the process was lost before. Raises ModelError.
        """
        if self._path is None:
            raise ModelError("The chat model is not loaded.")
        if self._process is not None and self._process.poll() is not None:
            self.close()  # while nobody talked, a system short of memory takes the largest process
        if self._pipe is None:
            self.load(self._path)
        assert self._pipe is not None
        stopped = False
        try:
            self._follow()
            self._pipe.send(Request(prompt, sampling, max_tokens, past_end))
            while (answer := self._pipe.recv()) not in (Signal.DONE, Signal.STOPPED):
                if isinstance(answer, Failure):
                    raise ModelError(answer.message, answer.hint)
                self._follow()
                unwanted = on_text(answer) if isinstance(answer, str) else on_prefilled()
                if unwanted and not stopped:
                    stopped = True
                    self._pipe.send(Signal.STOP)
            return answer is Signal.DONE
        except (EOFError, OSError) as error:
            self.close()
            lost = _lost(self._path)
            raise ModelError(lost.message, lost.hint) from error

    def _follow(self) -> None:
        if self._cores is not None:
            self._cores.follow()

    def close(self) -> None:
        """End the process. May be called twice."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            self._process.kill()  # it has nothing to save
            self._process.wait()
            self._process = None


def _lost(path: Path) -> Failure:
    return Failure(
        f"The process of the chat model {path.name} ended unexpectedly: too little memory?",
        "`voxtui doctor` says how much there is.",
    )


def _not_started(error: EOFError | OSError) -> Failure:
    return Failure(f"The process of the chat model cannot be started: {error}.")


def serve(pipe: Connection, path: Path, context_tokens: int) -> None:
    """The other process: load, then answer one request after another until the pipe is closed."""
    with suppress(EOFError, OSError):
        try:
            with _ended_with(pipe):
                server = _load(path, context_tokens)
            if can_hide_load():
                hide_load()
        except ModelError as error:
            pipe.send(Failure(error.message, error.hint))
            return
        pipe.send(Signal.LOADED)
        past = ""
        while True:
            request = pipe.recv()
            if isinstance(request, Request):  # a STOP may come after the end of what it stops
                before, past = past, request.prompt.rpartition(USER)[0]
                _answer(server, request, pipe, REUSED_RUN if past != before else 0)
    # At once: a server that is taken down as it starts waits for ever for a thread of its own, and
    # would outlive a voxtui that was killed while it loaded.
    os._exit(0)


@contextmanager
def _ended_with(pipe: Connection) -> Generator[None, None, None]:
    """Within, this process ends once the other end of `pipe` is closed, even deep in native code.

    Whatever came through it would end it too, but nothing does while the model loads.
    """
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_ASYNC)  # sends SIGIO, which nobody handles
    if pipe.poll():
        os._exit(0)
    try:
        yield
    finally:
        fcntl.fcntl(pipe, fcntl.F_SETFL, flags)


def _load(path: Path, context_tokens: int) -> Any:
    try:
        xllamacpp: Any = import_module("xllamacpp")
    except ImportError as error:
        lacks_openmp = "libgomp" in str(error)
        raise ModelError(
            "The embedded chat runtime is not installed or does not run here.",
            "Run: sudo apt install libgomp1" if lacks_openmp else how_to_install("embedded"),
        ) from error
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context_tokens
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = PREFILL_BATCH
    # Behind 512 tokens the sum over a cache of floats is split for a token that comes alone only.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_Q8_0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads()
    params.cache_ram_mib = 0
    params.verbosity = -1
    params.ui = params.endpoint_slots = False
    params.hostnames = [SOCKET]
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise ModelError(
            f"The chat model {path.name} did not load: too little memory or a damaged file.",
            "`voxtui doctor` says which.",
        ) from error


def _answer(server: Any, request: Request, pipe: Connection, reused_run: int) -> None:
    def take(event: Any) -> bool:
        """Pass on what came, and whether to stop."""
        if "error" in event:
            last.append(_refused(event["error"]))
            return True
        try:
            if "prompt_progress" in event:
                pipe.send(Signal.PREFILLED)
                return pipe.poll()
            (choice,) = event["choices"]
            if request.max_tokens and choice["text"]:
                pipe.send(choice["text"])
            if choice["finish_reason"]:
                last.append(Signal.DONE)
            return pipe.poll()
        except OSError:  # nobody is there any more
            return True

    last: list[Failure | Signal] = [Signal.STOPPED]
    server.handle_completions(
        {
            "prompt": request.prompt,
            "n_predict": request.max_tokens,
            "stream": True,
            "cache_prompt": True,
            "n_cache_reuse": reused_run,
            "return_progress": True,
            "seed": request.sampling.seed,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "top_k": request.sampling.top_k,
            "min_p": 0.0,
            "repeat_penalty": request.sampling.repetition_penalty,
            "ignore_eos": request.past_end,
            "stop": [] if request.past_end else ["<|im_end|>", "<|im_start|>"],
        },
        take,
    )
    pipe.send(last[-1])


def _refused(error: dict[str, Any]) -> Failure:
    if error.get("type") == "exceed_context_size_error":
        return Failure("That is too much at once for the chat model.", "Say less, or in parts.")
    return Failure(f"The chat model refused the turn: {error.get('message', error)}.")


def threads() -> int:
    """Cores the chat model may use.

    One fewer than there are, because its threads spin on each other and collapse when one is
    descheduled; but both of two, where the second is worth a third of the speed.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(min(cores, 2), cores - 1)


def chatml(instruction: str, exchanges: list[tuple[str, str]], words: str) -> str:
    """A ChatML prompt up to and including `words` of a user's turn that is not closed yet."""
    turns = [f"<|im_start|>system\n{plain(instruction)}<|im_end|>\n"]
    for user, reply in exchanges:
        turns.append(f"{USER}{plain(user)}<|im_end|>\n")
        turns.append(f"<|im_start|>assistant\n{plain(reply)}<|im_end|>\n")
    return "".join(turns) + USER + plain(words)


USER = "<|im_start|>user\n"

ASK = "<|im_end|>\n<|im_start|>assistant\n"
"""Closes the user's turn and opens the reply."""


def plain(text: str) -> str:
    """`text` without anything the tokenizer would read as a control token."""
    return text.replace("<|", "< |").strip()
