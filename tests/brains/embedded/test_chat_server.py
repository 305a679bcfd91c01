"""The process side of the chat model."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from voxtui.brains.embedded.chat_process import ASK, ChatRequest, Generated, Setup, Signal, chatml
from voxtui.brains.embedded.chat_server import (
    SEQUENCES,
    Sequences,
    answer,
    load,
)
from voxtui.models.installed import model_file
from voxtui.settings.schema import GenerationConfig


class ScriptedServer:
    """FakeServer: passes on `events`, and keeps what it was asked for."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = events
        self.asked: list[dict[str, Any]] = []

    def handle_completions(self, completion: dict[str, Any], take: Callable[[Any], bool]) -> None:
        self.asked.append(completion)
        for event in self.events:
            take(event)


def event(text: str, generated: int, finish: str | None = None) -> dict[str, Any]:
    choice = {"text": text, "finish_reason": finish}
    return {"choices": [choice], "timings": {"predicted_n": generated}}


def answered(server: ScriptedServer, **generation: Any) -> list[object]:
    """Return the messages of a reply."""
    mine, theirs = Pipe()
    sampling = GenerationConfig(**generation).sampling()
    with mine, theirs:
        answer(server, ChatRequest("x", sampling, 4, False), theirs, 0, 0)
        theirs.close()
        messages: list[object] = []
        while mine.poll():
            try:
                messages.append(mine.recv())
            except EOFError:
                break
    return messages


def test_the_settings_reach_the_chat_model() -> None:
    server = ScriptedServer(event("", 0, "length"))
    messages = answered(server, temperature=0.7, top_p=0.8, top_k=9, repetition_penalty=1.1, seed=5)
    assert messages == [Signal.DONE]
    names = ("temperature", "top_p", "top_k", "repeat_penalty", "seed")
    assert [server.asked[0][name] for name in names] == [0.7, 0.8, 9, 1.1, 5]


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        pytest.param([event("a", 1), event("", 1, "length")], ["a"], id="a token"),
        pytest.param([event("é", 2), event("", 2, "length")], ["", "é"], id="two for a character"),
        pytest.param([event("", 1), event("", 1, "length")], [""], id="a control token"),
        pytest.param([event("a", 1), event("", 2, "stop")], ["a"], id="the end is no token"),
        pytest.param([event("a", 1), event("", 3, "length")], ["a", "", ""], id="cut"),
    ],
)
def test_one_message_comes_for_each_token(events: list[dict[str, Any]], texts: list[str]) -> None:
    expected = [*map(Generated, texts), Signal.DONE]
    assert answered(ScriptedServer(*events)) == expected


def asks(instruction: str, *past: str) -> str:
    return chatml(instruction, [(text, "Yes.") for text in past], "So?")


def test_each_instruction_has_a_sequence_until_another_needs_it() -> None:
    sequences = Sequences(asks("0"))
    numbers = [sequences.choose(asks(str(n)))[0] for n in range(SEQUENCES)]
    assert numbers == list(range(SEQUENCES))
    assert sequences.choose(asks("0", "Hi.")) == (0, 16)
    assert sequences.choose(asks("0", "Hi.")) == (0, 0)
    # sequence 1 was not used for longest; nothing in it fits another instruction
    assert sequences.choose(asks("new", "Hi.")) == (1, 0)
    assert sequences.choose(asks("1"))[0] == 2


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "turns"),
    [("smollm2-135m", 12), ("qwen2.5-coder-1.5b", 0), ("qwen2.5-coder-1.5b", 12)],
)  # 12: behind 512 tokens
def test_a_prompt_gives_the_same_logits_in_any_split(
    model: str, turns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the runtime's socket is made
    past = [(f"Which number comes after {n}, and why?", f"It is {n + 1}.") for n in range(turns)]
    question = chatml("You are Vox. Be brief.", past * 2, "Which animal says meow?")
    server = load(Setup(model_file(model), 1024, batch=3))

    def evaluate(prompt: str) -> list[tuple[str, float]]:
        """Return the most likely next tokens and their probabilities."""
        found: list[tuple[str, float]] = []

        def take(event: Any) -> bool:
            chances = event["choices"][0].get("logprobs")
            if chances:
                found.extend(
                    (t["token"], t["logprob"]) for t in chances["content"][0]["top_logprobs"]
                )
            return "error" in event

        server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": 1,
                "stream": True,
                "n_probs": 5,
                "temperature": 0.0,
                "id_slot": 0,
            },
            take,
        )
        return found

    whole = evaluate(question + ASK)
    assert len(whole) == 5
    said = "Which animal says meow?"
    for pieces in [["?"], ["meow?"], ["says", "meow?"], ["animal", "says", "meow", "?"]]:
        ahead = question.removesuffix(said)
        evaluate(ahead + "something else")
        for piece in pieces:
            ahead = question[: question.rindex(said) + said.index(piece)]
            evaluate(ahead.rstrip())
        assert evaluate(question + ASK) == whole
