"""Talk through openai-agents, which validates each event of the server.

    python with_agents.py URL                 # a server whose parts only wait is enough
    python with_agents.py URL QUESTION.wav    # real models, which must call the tool of the agent

QUESTION.wav (16 bits, mono, 24 kHz) asks for the temperature in Oslo.
"""

from __future__ import annotations

import asyncio
import math
import struct
import sys
import wave
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner

RATE = 24_000

PATIENCE_SECONDS = 120.0


cities: list[str] = []
"""the arguments of the tool's calls"""


@function_tool
def get_temperature(city: str) -> str:
    """Get the current temperature in a city."""
    cities.append(city)
    return "minus 17 degrees Celsius"


async def opened(url: str, agent: RealtimeAgent) -> Any:
    runner = RealtimeRunner(
        agent,
        config={"model_settings": {"model_name": "gpt-realtime", "turn_detection": None}},
    )
    model = {"url": f"{url.replace('http', 'ws', 1)}/realtime", "api_key": "none"}
    return await runner.run(model_config=model)


async def with_tool(url: str, question: str) -> None:
    """Ask for a temperature in writing, then aloud. Exit if the tool is not called each time."""
    agent = RealtimeAgent(
        name="Assistant", instructions="Answer in one sentence.", tools=[get_temperature]
    )
    with wave.open(question) as file:
        spoken = file.readframes(file.getnframes())
    async with await opened(url, agent) as session:
        for count, way in enumerate(("written", "spoken"), 1):
            if way == "written":
                await session.send_message("What is the temperature in Oslo right now?")
            else:
                await session.send_audio(spoken, commit=True)
                await session.model.send_event(response_create())
            print(f"{way}:", await answer(session, ends=2))
            if len(cities) != count:
                raise SystemExit(f"the tool was called with {cities}")
        print("called with", cities)
        for item in session._history:  # noqa: SLF001 - the texts have no public way
            print(" ", item.model_dump_json(include={"role", "content"})[:300])


async def main(url: str) -> None:
    agent = RealtimeAgent(name="Assistant", instructions="Answer in one sentence.")
    async with await opened(url, agent) as session:
        await session.send_message("Tell me a short joke.")
        print("text:", await answer(session))
        tone = [round(9000 * math.cos(2 * math.pi * 220 * n / RATE)) for n in range(RATE)]
        await session.send_audio(struct.pack(f"<{RATE}h", *tone), commit=True)
        await session.model.send_event(response_create())
        print("sound:", await answer(session))


def response_create() -> object:
    from agents.realtime.model_inputs import RealtimeModelSendRawMessage

    return RealtimeModelSendRawMessage(message={"type": "response.create"})


async def answer(session: Any, ends: int = 1) -> str:
    """Return the kinds of the events until `ends` answers have ended. Exit on an error event."""
    kinds: dict[str, int] = {}
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for event in session:
            kinds[event.type] = kinds.get(event.type, 0) + 1
            if event.type == "error":
                raise SystemExit(f"error: {event.error}")
            if kinds.get("agent_end") == ends:
                break
    if not kinds.get("audio"):
        raise SystemExit(f"no sound: {kinds}")
    return ", ".join(f"{kind} {count}" for kind, count in kinds.items())


if __name__ == "__main__":
    asyncio.run(with_tool(*sys.argv[1:]) if len(sys.argv) > 2 else main(sys.argv[1]))
