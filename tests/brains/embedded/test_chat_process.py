"""The chat model's process, with real weights."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brains.conftest import small
from tests.fakes import SECONDS, Flag
from voxtui.brains.embedded.chat_process import (
    ASK,
    ChatRequest,
    Llama,
    chatml,
)
from voxtui.brains.embedded.chat_reply import ChatReply
from voxtui.brains.reply_form import SPEAKABLE, reply_form
from voxtui.errors import ModelError
from voxtui.models.installed import model_file
from voxtui.models.store import Stopped
from voxtui.settings.schema import Config

pytestmark = pytest.mark.models

SMALL = "smollm2-135m"


@pytest.fixture(scope="module")
def llama() -> Iterator[Llama]:
    llama = Llama(1024)
    llama.load(model_file(SMALL))
    yield llama
    llama.close()


OWNER = '''
import sys
import threading
from pathlib import Path
from voxtui.brains.embedded import chat_process
from voxtui.brains.embedded.chat_process import ChatRequest, Llama
from voxtui.settings.schema import Config

if sys.argv[2] == "reads a batch for ever":
    chat_process.SERVE = """
import sys, time
from multiprocessing.connection import Connection
from voxtui.brains.embedded import chat_server

class Stuck:
    def handle_completions(self, completion, take):
        take({"prompt_progress": {"processed": 1, "total": 2}})
        time.sleep(10**6)

chat_server.load = lambda setup: Stuck()
chat_server.serve(Connection(int(sys.argv[1])))
"""

def tell():
    print(llama.pid, flush=True)
    threading.Event().wait()

def say(text):
    tell()

class Telling(threading.Event):
    def is_set(self):
        tell()

llama = Llama(512)
llama.load(Path(sys.argv[1]), Telling() if sys.argv[2].startswith("loads") else threading.Event())
sampling = Config().generation.sampling()
stuck = sys.argv[2] == "reads a batch for ever"
llama.run(ChatRequest("Once", sampling, 400, True), lambda done, total: stuck and tell(), say)
'''


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
@pytest.mark.parametrize(
    "when",
    [
        "loads",
        "loads for ever",
        "reads a batch for ever",
        pytest.param("talks", marks=pytest.mark.slow),
    ],
)
def test_the_chat_process_ends_with_its_parent_also_if_that_is_killed(
    when: str, tmp_path: Path
) -> None:
    path = model_file("smollm2-135m")
    if when == "loads for ever":
        os.mkfifo(path := tmp_path / "fifo.gguf")
    arguments = [sys.executable, "-c", OWNER, path, when]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment) as owner:
        assert owner.stdout is not None
        chat = os.pidfd_open(int(owner.stdout.readline()))
        Flag().wait(0.2)  # so that the server has begun to load, or to talk
        owner.kill()
    ended, _, _ = select.select([chat], [], [], SECONDS)
    os.close(chat)
    assert ended


def test_a_reply_goes_on_after_sigterm_which_systemd_also_sends_to_the_server(
    llama: Llama,
) -> None:
    signalled: list[int] = []

    def end(text: str) -> bool:
        if not signalled and llama.pid is not None:
            os.kill(llama.pid, signal.SIGTERM)
            signalled.append(llama.pid)
        return False

    request = ChatRequest("Once", Config().generation.sampling(), 20, True)
    assert llama.run(request, lambda done, total: False, end)
    assert signalled == [llama.pid]


def test_a_file_that_is_not_a_model_fails_with_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(1000))
    with pytest.raises(ModelError, match=r"broken\.gguf did not load"):
        Llama(512).load(broken)


def test_a_process_that_cannot_be_started_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ModelError, match=r"cannot be started: .*No such file"):
        Llama(512).load(Path("any.gguf"))


@pytest.mark.slow
def test_a_long_path_for_temporary_files_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 25)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    llama = Llama(512)
    llama.load(model_file("smollm2-135m"))
    llama.close()


def test_an_aborted_loading_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    os.mkfifo(tmp_path / "slow.gguf")  # no process writes to it

    class OnceItListens(Flag):
        def is_set(self) -> bool:
            return bool(list(tmp_path.glob("*/chat.sock")))

    with pytest.raises(Stopped):
        Llama(512).load(tmp_path / "slow.gguf", OnceItListens())
    assert [path.name for path in tmp_path.iterdir()] == ["slow.gguf"]


@pytest.mark.slow
def test_dropping_the_oldest_turn_does_not_evaluate_the_others_again() -> None:
    exchanges = [(f"What is {n} and {n}?", f"It is {2 * n}, I am sure of that.") for n in range(20)]
    llama, sampling = Llama(1024, batch=3), small().generation.sampling()
    llama.load(model_file("smollm2-135m"))

    def batches(past: list[tuple[str, str]], words: str = "And now?") -> int:
        count = 0

        def prefilled(done: int, total: int) -> bool:
            nonlocal count
            count += 1
            return False

        request = ChatRequest(chatml("Be brief.", past, words), sampling, 0)
        llama.run(request, prefilled, lambda _: False)
        return count

    try:
        assert batches(exchanges) > 20
        assert batches(exchanges[1:]) < 5
        assert batches(exchanges[7:]) < 5
        words = "and what would you say is the sum of all of these numbers, if you had to guess it?"
        batches(exchanges[7:], f"Well, {words}")
        assert batches(exchanges[7:], words) > 5  # as without the word "Well"
    finally:
        llama.close()


def generated(llama: Llama, prompt: str, most: int, ignore_end: bool = False) -> list[str]:
    texts: list[str] = []

    def take(text: str) -> bool:
        texts.append(text)
        return False

    sampling = small(temperature=0.0).generation.sampling()
    request = ChatRequest(prompt, sampling, most, ignore_end)
    llama.run(request, lambda done, total: False, take)
    return texts


@pytest.mark.slow
def test_a_grammar_keeps_placeholders_out_of_replies() -> None:
    llama = Llama(512, grammar=SPEAKABLE)
    llama.load(model_file(SMALL))
    try:
        text = "".join(generated(llama, "Dear [name],\n\nOn [date] we met [name] in [", 40, True))
        assert len(text) > 20
        assert not set("[]{}<>*#`\n") & set(text)
        text = "".join(
            generated(llama, "The backup is 备份 備份 备份 備份 备份 備份 备份", 40, True)
        )
        assert text and not any("\u2e80" <= letter <= "\u9fff" for letter in text)
    finally:
        llama.close()


@pytest.mark.slow
def test_a_reply_in_latin_letters_has_no_other_ones() -> None:
    llama = Llama(512, grammar=reply_form("How do you say hello in Russian?").grammar())
    llama.load(model_file(SMALL))
    try:
        text = "".join(generated(llama, "Привет 😀 как дела? Привет 😀 как", 30, True))
        assert text and all(letter < "\u0370" or "\u1e00" <= letter < "\u2c00" for letter in text)
    finally:
        llama.close()


def test_a_reply_keeps_to_a_schema(llama: Llama) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "age": {"type": "integer", "minimum": 3, "maximum": 40},
            "when": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"enum": ["a", 1, None]}, "maxItems": 3},
            "next": {"anyOf": [{"$ref": "#/$defs/empty"}, {"type": "null"}]},
        },
        "required": ["name", "age", "when", "tags", "next"],
        "additionalProperties": False,
        "$defs": {"empty": {"type": "object", "additionalProperties": False}},
    }
    prompt, texts = chatml("Answer with JSON only.", [], "Who is Ada?") + ASK, list[str]()
    sampling = small(temperature=0.0).generation.sampling()
    request = ChatRequest(prompt, sampling, 100, json_schema=json.dumps(schema))
    assert llama.run(request, lambda done, total: False, lambda text: bool(texts.append(text)))
    reply = json.loads("".join(texts))
    assert reply.keys() == schema["properties"].keys()
    assert 3 <= reply["age"] <= 40
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", reply["when"])
    assert "schema" not in generated(llama, prompt, 4)  # the next reply is free again


def test_each_token_counts_whatever_text_it_has(llama: Llama) -> None:
    towers = "<|im_start|>user\nRepeat: 🗼🗼🗼🗼<|im_end|>\n<|im_start|>assistant\n🗼🗼🗼"
    cut_in_a_character = generated(llama, towers, 7)
    assert len(cut_in_a_character) == 7
    assert cut_in_a_character[:3] == ["", "", "🗼"]
    control_tokens = generated(llama, chatml("", [], "Say hi.") + ASK + "Hi.<|im_end|>", 3, True)
    assert len(control_tokens) == 3 and "" in control_tokens


@pytest.mark.parametrize("in_the_prompt", [True, False])
def test_the_process_stops_soon_after_the_request_is_unwanted(
    llama: Llama, in_the_prompt: bool
) -> None:
    """Otherwise the next turn would wait for its end."""
    prompt = "Once upon a time " * 40 if in_the_prompt else "Once"
    batches, texts = list[bool](), list[str]()

    def prefilled(done: int, total: int) -> bool:
        batches.append(True)
        return in_the_prompt

    def take(text: str) -> bool:
        texts.append(text)
        return True

    sampling = Config().generation.sampling()
    assert not llama.run(ChatRequest(prompt, sampling, 200, True), prefilled, take)
    assert len(batches) < 20
    assert len(texts) < (1 if in_the_prompt else 20)


@pytest.mark.slow
@pytest.mark.parametrize("model", [SMALL, "qwen2.5-coder-1.5b"])
def test_a_reply_that_is_paused_at_every_token_ends_as_one_that_is_not(model: str) -> None:
    sampling = small(temperature=0.0).generation.sampling()
    llama = Llama(1024, batch=3)  # equal digits
    llama.load(model_file(model))
    prompt = chatml("Be brief.", [], "Which animal says meow, and why?") + ASK

    def replied(pace: int) -> list[str]:
        reply = ChatReply(llama, ChatRequest(prompt, sampling, 24), Flag())
        while not reply.ended:
            most = len(reply.computed) + pace
            reply.run(lambda most=most: len(reply.computed) < most)
        return reply.computed

    try:
        whole = replied(24)
        assert len(whole) > 8
        assert replied(1) == whole
    finally:
        llama.close()


@pytest.mark.slow
def test_the_process_gets_no_secret(llama: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXTUI_API_KEY", "sk-secret")
    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    llama.close()
    assert generated(llama, "Once", 1)  # starts it again
    names = Path(f"/proc/{llama.pid}/environ").read_bytes()
    assert b"secret" not in names and b"PATH=" in names


def test_the_process_has_a_limit_of_memory(llama: Llama) -> None:
    limits = Path(f"/proc/{llama.pid}/limits").read_text()
    (line,) = (line for line in limits.splitlines() if line.startswith("Max address space"))
    assert int(line.split()[3]) < 3 * 98_362_432 + 64 * 1024**3


@pytest.mark.slow
def test_the_template_of_a_file_is_not_run(tmp_path: Path) -> None:
    """It is a program: this one would write text until the memory is used up."""
    data = bytearray(model_file(SMALL).read_bytes())
    key = b"tokenizer.chat_template"
    start = data.index(key) + len(key) + 4  # behind the type
    length = int.from_bytes(data[start : start + 8], "little")
    bomb = b"{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"
    data[start + 8 : start + 8 + length] = bomb.ljust(length)
    path = tmp_path / "bomb.gguf"
    path.write_bytes(data)
    llama = Llama(512)
    deadline = time.monotonic() + SECONDS

    class TooLate(Flag):
        def is_set(self) -> bool:
            return time.monotonic() > deadline

    llama.load(path, TooLate())
    llama.close()


@pytest.mark.slow
def test_the_second_visit_of_an_instruction_reads_no_more_than_a_repeat() -> None:
    llama = Llama(1024)
    llama.load(model_file(SMALL))
    first, second = (
        chatml(f"You are {name}. " + f"{name} is kind and brief. " * 30, [], "Hello")
        for name in ("Ada", "Bea")
    )
    read: list[int] = []

    def run(prompt: str) -> int:
        seen: list[int] = []
        sampling = small(temperature=0.0).generation.sampling()
        request = ChatRequest(prompt, sampling, 0)
        llama.run(request, lambda done, total: bool(seen.append(done)), lambda text: False)
        return seen[-1] - seen[0]

    try:
        read = [run(prompt) for prompt in (first, first, second, first, second)]
    finally:
        llama.close()
    assert read[0] > 100
    assert read[2] > 100
    assert max(read[1], *read[3:]) <= 1
