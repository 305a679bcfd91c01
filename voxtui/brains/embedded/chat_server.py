"""The process at the other end of the chat model's pipe: llama.cpp, started by `Llama`."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from voxtui.brains.embedded.chat_process import (
    SOCKET,
    USER,
    ChatRequest,
    Failure,
    Generated,
    Prefilled,
    Setup,
    Signal,
)
from voxtui.brains.embedded.prefix_files import prefix_file
from voxtui.errors import ModelError, how_to_install

SEQUENCES = 8
"""Prompts with different instructions in the cache; llama.cpp allows no more than batch tokens."""

OTHER_TOKENS = 4096
"""Tokens of the cache for the sequences that are not in use: 62 MB with a model of 1.5 billion
parameters. With too few, llama.cpp empties one of them."""

END_OF_TURN = "<|im_end|>"

CACHE_TYPE = "GGML_TYPE_Q8_0"
"""Type of the cache, with half the memory of a float cache, which is read for each token. With
batches of 3 it also makes the reply independent of the pieces in which a prompt was evaluated."""

REUSED_RUN = 16
"""Minimum run of tokens for KV-cache shifting (`n_cache_reuse`). A long conversation drops its
oldest turn in every turn. Evaluating the 850 tokens after it again would take 14 s on two cores;
shifting them takes no measurable time. It is used only then, because shifted entries differ
slightly from evaluated ones, and words of this turn may still change."""

MODEL_COPIES = 2
"""Copies of the model in memory: the mapped file, and perhaps one arranged for the processor."""

OVERHEAD_BYTES = 3 * 1024**3
"""Address space for libraries, the cache and buffers."""

CORE_BYTES = 512 * 1024**2
"""Address space per core: the stacks of its threads, and the arenas of their allocator."""


class Server(Protocol):
    """The used methods of xllamacpp.Server."""

    def handle_completions(
        self, completion: dict[str, Any], take: Callable[[Any], bool]
    ) -> object: ...


def serve(pipe: Connection) -> None:
    """Load the model, then answer one request after another until the pipe is closed."""
    with suppress(EOFError, OSError):
        _end_with_voxtui()
        setup = pipe.recv()
        limit_memory(setup.path)
        try:
            server = load(setup)
            prepare(server, setup)
        except ModelError as error:
            pipe.send(Failure(error.message, error.hint))
            return
        pipe.send(Signal.LOADED)
        sequences = Sequences(setup.prefix, min(SEQUENCES, setup.batch), setup.tool_prefix)
        while True:
            request = pipe.recv()
            if isinstance(request, ChatRequest):  # a late STOP, for a request that has ended
                number, reused_run = sequences.choose(request.prompt)
                grammar = setup.grammar if request.grammar is None else request.grammar
                answer(server, request, pipe, number, reused_run, grammar)
    # Ends at once. A server that is closed while it starts waits forever for one of its threads,
    # and would outlive a voxtui that was killed during the loading.
    os._exit(0)


class Sequences:
    """Assigns the sequences of the cache to instructions.

    The prefixes are in the first sequences. A new instruction gets a free one, or else the least
    recently used one.
    """

    def __init__(self, prefix: str, most: int = SEQUENCES, tool_prefix: str = "") -> None:
        prefixes = filter(None, (prefix, tool_prefix))
        self._numbers = {_front(text): number for number, text in enumerate(prefixes)}
        """the sequence of each instruction, the last used one last"""
        self._pasts = [""] * most

    def choose(self, prompt: str) -> tuple[int, int]:
        """Return the sequence for `prompt`, and the minimum run of tokens to shift in it.

        A run of 0 shifts nothing: nothing before the newest turn has changed, or the sequence held
        another instruction, to which its entries have attended.
        """
        front, past = _front(prompt), prompt.rpartition(USER)[0]
        number = self._numbers.pop(front, None)
        is_new = number is None
        if number is None:
            number = len(self._numbers)
            if number == len(self._pasts):
                number = self._numbers.pop(next(iter(self._numbers)))
        self._numbers[front] = number
        before, self._pasts[number] = self._pasts[number], past
        return number, REUSED_RUN if past != before and not is_new else 0


def _front(prompt: str) -> str:
    return prompt.partition(USER)[0]


def limit_memory(path: Path) -> None:
    """Limit the address space of this process, so that a hostile file cannot take all memory."""
    with suppress(OSError, ValueError):  # not every system has this limit
        overhead = OVERHEAD_BYTES + CORE_BYTES * (os.cpu_count() or 1)
        most = MODEL_COPIES * path.stat().st_size + overhead
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft == resource.RLIM_INFINITY or soft > most:
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _end_with_voxtui() -> None:
    """End this process once voxtui's end of its standard input is closed, even in native code.

    By the other pipe it would end only after a batch or a token, on a busy machine seconds later.
    SIGTERM is ignored: systemd sends it to all processes of a service.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, os.O_ASYNC)  # sends SIGIO, which ends a process
    if select.select([0], [], [], 0)[0]:
        os._exit(0)


def load(setup: Setup) -> Server:
    """Load a GGUF file. The server's socket is in the current directory. Raises ModelError."""
    try:
        xllamacpp: Any = import_module("xllamacpp")
    except ImportError as error:
        lacks_openmp = "libgomp" in str(error)
        raise ModelError(
            "The embedded chat runtime is not installed or does not run here.",
            "Run: sudo apt install libgomp1" if lacks_openmp else how_to_install("embedded"),
        ) from error
    params = xllamacpp.CommonParams()
    params.model.path = str(setup.path)
    params.n_ctx = setup.context_tokens + OTHER_TOKENS
    params.n_parallel = min(SEQUENCES, setup.batch)
    params.kv_unified = True
    params.cache_idle_slots = False
    params.n_batch = params.n_ubatch = setup.batch
    params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, CACHE_TYPE)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads()
    params.cache_ram_mib = 0
    params.verbosity = -1
    params.ui = params.endpoint_slots = False
    params.hostnames = [SOCKET]
    if setup.prefix_directory is not None:
        params.slot_save_path = f"{setup.prefix_directory}/"
    # Our own template, because the file's template is a program that llama.cpp would run.
    params.chat_template, params.use_jinja = "chatml", False
    try:
        return xllamacpp.Server(params)
    except (MemoryError, RuntimeError) as error:
        raise ModelError(
            f"The chat model {setup.path.name} did not load: too little memory or a damaged file.",
            "`voxtui doctor` says which.",
        ) from error


def prepare(server: Server, setup: Setup) -> None:
    """Bring both prefixes into the cache: from a file, or by evaluation, which writes the file."""
    for sequence, prefix in enumerate(filter(None, (setup.prefix, setup.tool_prefix))):
        file = prefix_file(replace(setup, prefix=prefix), (CACHE_TYPE, SEQUENCES, setup.batch))
        if file is not None and file.restore(sequence):
            continue
        request = {"prompt": prefix, "n_predict": 0, "cache_prompt": True, "id_slot": sequence}
        server.handle_completions(request, lambda event: False)
        if file is not None:
            file.save(sequence)


def answer(
    server: Server,
    request: ChatRequest,
    pipe: Connection,
    sequence: int,
    reused_run: int,
    grammar: str = "",
) -> None:
    """Send the reply to `request` through `pipe`: a message per token, then the result."""
    last: list[Failure | Signal] = [Signal.STOPPED]
    reported = 0

    def report(choice: dict[str, Any], generated: int) -> None:
        """Send a message per new token. Bytes of an incomplete character have no text.

        Their tokens wait for the next event, because the token that ends the reply has no text
        either.
        """
        nonlocal reported
        text, finish = choice["text"], choice["finish_reason"]
        if not text and not finish:
            return
        silent = generated - reported - bool(text) - (finish == "stop")
        for part in [""] * silent + [text] * bool(text):
            pipe.send(Generated(part))
        reported = max(reported, generated)

    def take(event: Any) -> bool:
        if "error" in event:
            last.append(_refused(event["error"]))
            return True
        try:
            if "prompt_progress" in event:
                progress = event["prompt_progress"]
                pipe.send(Prefilled(progress["processed"], progress["total"]))
                return pipe.poll()
            (choice,) = event["choices"]
            if request.max_tokens:
                report(choice, event["timings"]["predicted_n"])
            if choice["finish_reason"]:
                last.append(Signal.DONE)
            return pipe.poll()
        except OSError:  # the other process has ended
            return True

    server.handle_completions(
        {
            "prompt": request.prompt,
            "id_slot": sequence,
            "n_predict": request.max_tokens,
            "stream": True,
            "cache_prompt": True,
            "n_cache_reuse": reused_run,
            "return_progress": True,
            "timings_per_token": True,
            "seed": request.sampling.seed,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "top_k": request.sampling.top_k,
            "min_p": 0.0,
            "repeat_penalty": request.sampling.repetition_penalty,
            "ignore_eos": request.ignore_end,
            "grammar": _grammar_of(request.json_schema) if request.json_schema else grammar,
            "logit_bias": [request.bias] if request.bias else [],
            "stop": [] if request.ignore_end else [END_OF_TURN, "<|im_start|>"],
        },
        take,
    )
    pipe.send(last[-1])


def _grammar_of(schema: str) -> str:
    """Return the grammar of a JSON schema, without spaces and line breaks between the values."""
    binding = import_module("xllamacpp")
    return binding.json_schema_to_grammar(
        {**json.loads(schema), "x-guidance": {"whitespace_flexible": False}}
    )


def _refused(error: dict[str, Any]) -> Failure:
    if error.get("type") == "exceed_context_size_error":
        return Failure("The input is too long for the chat model.", "Say or type less at once.")
    return Failure(f"The chat model refused the turn: {error.get('message', error)}.")


def threads() -> int:
    """Return the number of cores for the chat model.

    It is all but one, because the threads wait for each other many times per token, so one
    displaced thread delays all. Of two cores it is both, because the second adds a third of the
    speed.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(min(cores, 2), cores - 1)
