"""Ask for tools, and for none: right calls, false calls, and answers with and without tools.

    python -m benchmarks.tools [--spoken] [--without] [--part 0:20] [--json OUT]

The sentences stand in tools.toml. The engine is that of `voxtui ask`, with the embedded brain: a
call of a tool that acts is refused there, after it was chosen. Spoken: the embedded voice says each
sentence. Without: no tools, to compare the answers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.conversation import clips
from voxtui.audio.file_speaker import SilentSpeaker
from voxtui.commands.headless import headless
from voxtui.dialogue.commands import NewConversation
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.timestamps import Turn
from voxtui.settings.schema import BrainConfig, Config, ToolCommand, ToolsConfig
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
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--part", default=":")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    judging = tomllib.loads(FILE.read_text())
    begin, end = (int(text) if text else None for text in options.part.split(":"))
    sentences = [*judging["request"], *judging["other"]][begin:end]
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(judging["command"], folder, not options.without)
        said: Sequence[Any] = [sentence["say"] for sentence in sentences]
        if options.spoken:
            said = clips(said, config)

        def engine(emit: Any) -> Any:
            skills = build_skills(config, rings=False)
            return build_engine(config, emit, Devices(speaker=SilentSpeaker()), skills)

        results: list[dict[str, Any]] = []
        with headless(engine) as started:
            for sentence, words in zip(sentences, said, strict=True):
                started.engine.post(NewConversation())
                if options.spoken:
                    turn = started.ask(words, paced=False)
                else:
                    turn = started.ask_text(words, lambda event: None)
                results.append(judged(sentence, turn))
                print(json.dumps(results[-1], ensure_ascii=False), flush=True)
    for name in ("request", "false call", "answer"):
        judged_so = [result[name] for result in results if name in result]
        print(f"{name}: {sum(judged_so)} of {len(judged_so)}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, ensure_ascii=False))


def judged(sentence: dict[str, Any], turn: Turn) -> dict[str, Any]:
    result: dict[str, Any] = {"say": sentence["say"], "heard": turn.heard, "reply": turn.reply}
    result["calls"] = [(report.call.name, report.call.arguments) for report in turn.calls]
    result["ms"] = turn.first_sound_ms
    if "tool" in sentence:
        return {**result, "request": is_right(sentence, turn)}
    result["false call"] = bool(turn.calls)
    if answers := sentence.get("answer"):
        result["answer"] = any(answer in turn.reply.lower() for answer in answers)
    return result


if __name__ == "__main__":
    main()
