"""Talk through openai-agents, which validates each event of the server: URL of the API."""

from __future__ import annotations

import asyncio
import math
import struct
import sys
from typing import Any

from agents.realtime import RealtimeAgent, RealtimeRunner

RATE = 24_000

PATIENCE_SECONDS = 30.0


async def main(url: str) -> None:
    agent = RealtimeAgent(name="Assistant", instructions="Answer in one sentence.")
    runner = RealtimeRunner(
        agent,
        config={"model_settings": {"model_name": "gpt-realtime", "turn_detection": None}},
    )
    model = {"url": f"{url.replace('http', 'ws', 1)}/realtime", "api_key": "none"}
    async with await runner.run(model_config=model) as session:
        await session.send_message("Tell me a short joke.")
        print("text:", await answer(session))
        tone = [round(9000 * math.cos(2 * math.pi * 220 * n / RATE)) for n in range(RATE)]
        await session.send_audio(struct.pack(f"<{RATE}h", *tone), commit=True)
        await session.model.send_event(response_create())
        print("sound:", await answer(session))


def response_create() -> object:
    from agents.realtime.model_inputs import RealtimeModelSendRawMessage

    return RealtimeModelSendRawMessage(message={"type": "response.create"})


async def answer(session: Any) -> str:
    """Return the kinds of the events until the answer has ended. Raises on an error event."""
    kinds: dict[str, int] = {}
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for event in session:
            kinds[event.type] = kinds.get(event.type, 0) + 1
            if event.type == "error":
                raise SystemExit(f"error: {event.error}")
            if event.type == "agent_end":
                break
    if not kinds.get("audio"):
        raise SystemExit(f"no sound: {kinds}")
    return ", ".join(f"{kind} {count}" for kind, count in kinds.items())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
