"""Offer a client's functions to the embedded model, and count right and false calls.

    python -m benchmarks.client_tools [--json OUT]

The functions and requests are in client_tools.toml. Only the choice is made, by the model that
`voxtui serve` uses; nothing is called. Prints a line per request and the two counts.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from voxtui.brains.embedded.chat_process import ChatRequest, Llama
from voxtui.brains.embedded.tool_prompt import CALL_TOKENS, tool_choice
from voxtui.dialogue.data import ToolCall
from voxtui.dialogue.protocols import ReplyOptions
from voxtui.dialogue.tool_interface import Tool
from voxtui.models.installed import chat_model_name, model_file
from voxtui.serve.function_tools import Function, tools_of
from voxtui.settings.schema import Config


def chosen(chat: Llama, tools: tuple[Tool, ...], words: str) -> ToolCall | None:
    choice = tool_choice((), words, ReplyOptions(tools=tools))
    assert choice is not None
    texts: list[str] = []
    sampling = replace(Config().generation.sampling(), temperature=0.0)
    request = ChatRequest(choice.prompt, sampling, CALL_TOKENS, grammar=choice.grammar)
    chat.run(request, lambda done, total: False, texts.append)  # type: ignore[func-returns-value]
    return choice.call("".join(texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chat = Llama(4096)
    chat.load(model_file(chat_model_name(Config().brain.embedded.model)))
    right = needed = false = others = 0
    results: list[dict[str, Any]] = []
    clients = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["client"]
    for client in clients:
        tools, _ = tools_of(msgspec.convert(client["functions"], list[Function]), "auto")
        for words, name, parts in [*client["call"], *((none, "", "") for none in client["none"])]:
            call = chosen(chat, tools, words)
            arguments = call.arguments.lower() if call else ""
            ok = (call.name if call else "") == name and all(p in arguments for p in parts.split())
            if name:
                needed, right = needed + 1, right + ok
            else:
                others, false = others + 1, false + (not ok)
            results.append({"words": words, "call": call and [call.name, call.arguments], "ok": ok})
            print("ok   " if ok else "WRONG", words, "->", call and (call.name, call.arguments))
    print(f"right calls: {right} of {needed}; false calls: {false} of {others}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    chat.close()


if __name__ == "__main__":
    main()
