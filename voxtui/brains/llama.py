"""The embedded chat model: a GGUF run by llama.cpp in this process, ChatML prompts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from voxtui.config import Sampling
from voxtui.errors import ModelError

PREFILL_BATCH = 16
"""Tokens evaluated between two looks at whether the work is still wanted: 0.2 s on two cores, and
no slower per token than larger batches there."""


class Llama:
    """One sequence with its KV cache, reused as far as the next prompt begins the same way.

    Not thread-safe: `load`, `run` and `close` belong to one thread at a time.
    """

    def __init__(self, context_tokens: int) -> None:
        self._context_tokens = context_tokens
        self._server: Any = None

    def load(self, path: Path) -> None:
        """Raises ModelError."""
        try:
            xllamacpp: Any = import_module("xllamacpp")
        except ImportError as error:
            lacks_openmp = "libgomp" in str(error)
            raise ModelError(
                "The embedded chat runtime is not installed or does not run here.",
                "Run: sudo apt install libgomp1"
                if lacks_openmp
                else "pip install 'voxtui[embedded]'",
            ) from error
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = self._context_tokens
        params.n_parallel = 1
        params.n_batch = params.n_ubatch = PREFILL_BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads()
        params.cache_ram_mib = 0
        params.verbosity = -1
        params.ui = params.endpoint_slots = False
        try:
            # It always listens somewhere: a socket that is gone before anybody could find it.
            with tempfile.TemporaryDirectory(prefix="voxtui-") as folder:
                params.hostnames = [os.path.join(folder, "chat.sock")]
                self._server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise ModelError(
                f"The chat model {path.name} did not load: too little memory or a damaged file.",
                "`voxtui doctor` says which; `voxtui models fetch` gets the file anew.",
            ) from error

    def run(
        self,
        prompt: str,
        sampling: Sampling,
        max_tokens: int,
        on_prefilled: Callable[[], bool],
        on_text: Callable[[str], bool],
        *,
        past_end: bool = False,
    ) -> None:
        """Evaluate `prompt`, then generate up to `max_tokens` (0: only evaluate).

        `on_prefilled` is called around each batch of the prompt, `on_text` with each token's text;
        either returns True to stop at once. `past_end` keeps the model from ending the reply.
        Raises ModelError.
        """
        failure: list[str] = []

        def take(event: Any) -> bool:
            if "error" in event:
                failure.append(str(event["error"].get("message", event["error"])))
                return True
            if "prompt_progress" in event:
                return on_prefilled()
            text = event["choices"][0]["text"]
            return on_text(text) if text and max_tokens else False

        self._server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": max_tokens,
                "stream": True,
                "cache_prompt": True,
                "return_progress": True,
                "seed": 1,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "min_p": 0.0,
                "repeat_penalty": sampling.repetition_penalty,
                "ignore_eos": past_end,
                "stop": [] if past_end else ["<|im_end|>", "<|im_start|>"],
            },
            take,
        )
        if failure:
            raise ModelError(f"The chat model refused the turn: {failure[0]}.")

    def close(self) -> None:
        self._server = None


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
        turns.append(f"<|im_start|>user\n{plain(user)}<|im_end|>\n")
        turns.append(f"<|im_start|>assistant\n{plain(reply)}<|im_end|>\n")
    return "".join(turns) + f"<|im_start|>user\n{plain(words)}"


ASK = "<|im_end|>\n<|im_start|>assistant\n"
"""Closes the user's turn and opens the reply."""


def plain(text: str) -> str:
    """`text` without anything the tokenizer would read as a control token."""
    return text.replace("<|", "< |").strip()
