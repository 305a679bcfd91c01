"""Talk the Wyoming protocol to wyoming_openai, as Home Assistant does: its port, and a WAV file.

It has the file transcribed, whole and as a stream, and a text spoken, whole and word by word.
"""

from __future__ import annotations

import asyncio
import sys
import time
import wave
from pathlib import Path

from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.info import Describe, Info
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

PATIENCE_SECONDS = 120.0

TEXT = "The soup is ready. Would you lay the table, please? Then call the others. We eat at eight."


async def describe(port: int) -> Info:
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(Describe().event())
        event = await client.read_event()
        assert event is not None
        return Info.from_event(event)


async def transcribe(port: int, model: str, wav: Path) -> str:
    """Send the file in pieces and return its words. Raises ConnectionError if none come."""
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(Transcribe(name=model, language="en").event())
        with wave.open(str(wav)) as file:
            form = {
                "rate": file.getframerate(),
                "width": file.getsampwidth(),
                "channels": file.getnchannels(),
            }
            await client.write_event(AudioStart(**form).event())
            while piece := file.readframes(1024):
                await client.write_event(AudioChunk(audio=piece, **form).event())
        await client.write_event(AudioStop().event())
        while (event := await client.read_event()) is not None:
            if Transcript.is_type(event.type):
                return Transcript.from_event(event).text
    raise ConnectionError("no transcript")


async def speak(port: int, voice: str, streaming: bool) -> tuple[float, float]:
    """Return the seconds of the speech of TEXT, and those until it began."""
    async with AsyncTcpClient("127.0.0.1", port) as client:
        asked = time.monotonic()
        if streaming:
            await client.write_event(SynthesizeStart(voice=SynthesizeVoice(name=voice)).event())
            for word in TEXT.split():
                await client.write_event(SynthesizeChunk(text=f"{word} ").event())
            await client.write_event(SynthesizeStop().event())
        else:
            whole = Synthesize(text=TEXT, voice=SynthesizeVoice(name=voice))
            await client.write_event(whole.event())
        seconds, first = 0.0, None
        last = SynthesizeStopped if streaming else AudioStop
        while (event := await client.read_event()) is not None:
            if AudioChunk.is_type(event.type):
                first = first or time.monotonic() - asked
                seconds += AudioChunk.from_event(event).seconds
            if last.is_type(event.type):
                break
    if first is None:
        raise ConnectionError("no sound")
    return seconds, first


async def main(port: int, wav: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        info = await describe(port)
    print("recognisers:", [model.name for program in info.asr for model in program.models])
    print("voices:", [voice.name for program in info.tts for voice in program.voices])
    for program in info.asr:
        for model in program.models:
            how = "streamed" if program.supports_transcript_streaming else "whole"
            async with asyncio.timeout(PATIENCE_SECONDS):
                print(f"{model.name} ({how}):", await transcribe(port, model.name, wav))
    for program in info.tts:
        for voice in program.voices:
            streaming = bool(program.supports_synthesize_streaming)
            async with asyncio.timeout(PATIENCE_SECONDS):
                seconds, first = await speak(port, voice.name, streaming)
            how = "word by word" if streaming else "whole"
            print(f"{voice.name} ({how}): {seconds:.1f} s of speech, the first after {first:.1f} s")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
