"""Ask for tools, and for none: right calls, false calls, and answers with and without tools.

    python -m benchmarks.tools [--calls | --without | --times] [--spoken] [--set FILE]
                               [--part 0:20] [--json OUT]

The sentences stand in tools.toml, and in tools_a.toml to tools_r.toml. The engine is that of
`voxtui ask`, with the embedded brain: a call of a tool that acts is refused there, after it was
chosen. Spoken: the embedded voice says each sentence. Without: no tools, to compare the answers.
Calls: only which call is made, by a rule or by the model, without an engine and without answers;
that takes a minute. Times: each sentence with and without tools, by two engines in turn, and the
first sound of each; for a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tomllib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.conversation import clips
from voxtui.audio.file_speaker import NullSpeaker
from voxtui.brains.embedded.chat_process import Llama
from voxtui.brains.embedded.recogniser import Moonshine
from voxtui.brains.embedded.tool_prompt import tool_choice, tool_prefix
from voxtui.commands.headless import headless
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import ToolCall
from voxtui.dialogue.engine_commands import NewConversation
from voxtui.dialogue.protocols import ReplyOptions, SkillRequest
from voxtui.dialogue.timestamps import Outcome, Turn
from voxtui.dialogue.tool_interface import CallOutcome, CallReport
from voxtui.errors import ForeignSpeech
from voxtui.models.installed import chat_model_name, model_file
from voxtui.settings.paths import user_folders
from voxtui.settings.schema import BrainConfig, Config, ToolCommand, ToolsConfig
from voxtui.tools.configured_tools import build_tools
from voxtui.wiring import build_engine, build_skills

FILE = Path(__file__).with_suffix(".toml")


def configuration(commands: Sequence[dict[str, Any]], folder: str, enabled: bool) -> Config:
    known = [{**command, "run": ["true"]} for command in commands]
    calendar = Path(folder) / "calendar.ics"
    calendar.write_text("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nEND:VCALENDAR\r\n")
    tools = ToolsConfig(
        enabled,
        notes_file=f"{folder}/notes.md",
        calendar_file=str(calendar),
        command=tuple(msgspec.convert(known, list[ToolCommand])),
    )
    return Config(brain=BrainConfig(name="embedded"), tools=tools)


def is_right(request: dict[str, Any], turn: Turn) -> bool:
    if [report.call.name for report in turn.calls[:1]] != [request["tool"]]:
        return False
    arguments = turn.calls[0].call.arguments.lower()
    return all(any(form in arguments for form in forms) for forms in request.get("arguments", ()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--spoken", action="store_true")
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--set", type=Path, default=FILE)
    parser.add_argument("--part", default=":")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    judging = tomllib.loads(options.set.read_text())
    commands = tomllib.loads(FILE.read_text())["command"]
    begin, end = (int(text) if text else None for text in options.part.split(":"))
    sentences = [*judging["request"], *judging["other"]][begin:end]
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(commands, folder, not options.without)
        said: Sequence[Any] = [sentence["say"] for sentence in sentences]
        if options.spoken:
            said = clips(said, config)
        if options.times:
            times(said, config, configuration(commands, folder, enabled=False))
            return
        how = calls if options.calls else turns
        results: list[dict[str, Any]] = []
        for sentence, turn in zip(sentences, how(said, config), strict=True):
            results.append(judged(sentence, turn))
            print(json.dumps(results[-1], ensure_ascii=False), flush=True)
    for name in ("request", "false call", "answer"):
        judged_so = [result[name] for result in results if name in result]
        print(f"{name}: {sum(judged_so)} of {len(judged_so)}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, ensure_ascii=False))


def turns(said: Sequence[Any], config: Config) -> Generator[Turn]:
    """Yield the turn of each sentence, each in a conversation of its own."""

    def engine(emit: Any) -> Any:
        skills = build_skills(config, rings=False)
        return build_engine(config, emit, Devices(speaker=NullSpeaker()), skills)

    with headless(engine) as started:
        for words in said:
            started.engine.post(NewConversation())
            yield started.ask(words, paced=False)


def times(said: Sequence[Any], config: Config, without: Config) -> None:
    """Print the first sound of each sentence with and without tools, and the medians."""
    engines = [turns(said, config), turns(said, without)]
    kinds: dict[str, list[Sequence[float]]] = {"a call": [], "no call": []}
    for number, words in enumerate(said):
        order = (0, 1) if number % 2 else (1, 0)
        by_engine = {place: next(engines[place]) for place in order}
        sounds = [by_engine[place].first_sound_ms for place in (0, 1)]
        print(words if isinstance(words, str) else by_engine[0].heard, sounds, flush=True)
        if sounds[0] is not None and sounds[1] is not None:
            kinds["a call" if by_engine[0].calls else "no call"].append(sounds)
    for engine in engines:
        engine.close()
    for kind, pairs in kinds.items():
        if pairs:
            medians = [round(median(column)) for column in zip(*pairs, strict=True)]
            print(f"{kind}, {len(pairs)} turns, median first sound: with tools {medians[0]} ms, "
                  f"without {medians[1]} ms")  # fmt: skip


def calls(said: Sequence[Any], config: Config) -> Iterator[Turn]:
    """Yield a turn for each sentence that holds only its call."""
    tools = build_tools(config.tools)
    skills = build_skills(config, rings=False)
    moonshine = Moonshine()
    moonshine.load()
    chat = Llama(4096, prefix_directory=user_folders().user_cache_path / "prefixes")
    path = model_file(chat_model_name(config.brain.embedded.model))
    chat.load(path, tool_prefix=tool_prefix(tools))
    sampling = config.generation.sampling()
    for words in said:
        began = time.monotonic()
        if not isinstance(words, str):
            try:
                words = moonshine.recognise(words.samples).english()
            except ForeignSpeech:
                words = ""
        answer = skills.answer(SkillRequest(words, config=config))
        call = answer if isinstance(answer, ToolCall) else None
        choice = None if answer else tool_choice((), words, ReplyOptions(tools=tools))
        if choice is not None:
            texts: list[str] = []
            chat.run(choice.request(sampling), lambda done, total: False, texts.append)  # type: ignore[func-returns-value]
            call = choice.call("".join(texts))
        way = "rule" if answer else "model" if choice else "no trigger"
        report = CallReport(call, CallOutcome.REFUSED, time.monotonic() - began) if call else None
        yield Turn(0, way, Outcome.ANSWERED, {}, heard=words, calls=(report,) if report else ())
    chat.close()
    moonshine.close()


def judged(sentence: dict[str, Any], turn: Turn) -> dict[str, Any]:
    result: dict[str, Any] = {"say": sentence["say"], "heard": turn.heard, "reply": turn.reply}
    result["calls"] = [(report.call.name, report.call.arguments) for report in turn.calls]
    result["ms"], result["way"] = turn.first_sound_ms, turn.brain
    if "tool" in sentence:
        return {**result, "request": is_right(sentence, turn)}
    result["false call"] = bool(turn.calls)
    if (answers := sentence.get("answer")) and turn.reply:
        result["answer"] = any(answer in turn.reply.lower() for answer in answers)
    return result


if __name__ == "__main__":
    main()
