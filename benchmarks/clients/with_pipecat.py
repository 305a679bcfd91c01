"""Talk through pipecat's OpenAI realtime service: URL of the API, and a question (WAV, 24 kHz).

A pipeline asks for a first answer, then speaks into the server's own detection of turns, and then
speaks over the answer, which pipecat truncates.
"""

from __future__ import annotations

import asyncio
import sys
import time
import wave
from collections import Counter
from pathlib import Path

from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.realtime.events import (
    AudioConfiguration,
    AudioInput,
    InputAudioTranscription,
    SessionProperties,
    TurnDetection,
)
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner

RATE = 24_000

PIECE_SECONDS = 0.02

SILENCE_SECONDS = 1.0
"""Length of silence after speech, by which the server detects its end."""

PATIENCE_SECONDS = 60.0


class Watcher(FrameProcessor):
    """Counts the frames that pass, and stores the words of the user."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[type] = Counter()
        self.heard: list[str] = []
        self.failed: list[str] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self.seen[type(frame)] += 1
        if isinstance(frame, TranscriptionFrame):
            self.heard.append(frame.text)
        if isinstance(frame, ErrorFrame):
            self.failed.append(frame.error)
        await self.push_frame(frame, direction)

    async def until(self, kind: type, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.seen[kind] < count:
                if self.failed:
                    raise SystemExit(f"error: {self.failed[0]}")
                await asyncio.sleep(PIECE_SECONDS)  # pipecat calls nobody back here


async def speak(worker: PipelineWorker, pcm: bytes) -> None:
    """Send sound (16 bit) in real time, and then silence."""
    size = 2 * round(RATE * PIECE_SECONDS)
    pcm += bytes(2 * round(RATE * SILENCE_SECONDS))
    began = time.monotonic()
    for count, at in enumerate(range(0, len(pcm) - size, size), 1):
        piece = InputAudioRawFrame(audio=pcm[at : at + size], sample_rate=RATE, num_channels=1)
        await worker.queue_frame(piece)
        await asyncio.sleep(began + count * PIECE_SECONDS - time.monotonic())


async def converse(
    worker: PipelineWorker, question: bytes, before: Watcher, after: Watcher
) -> None:
    await worker.queue_frame(LLMRunFrame())
    await after.until(LLMFullResponseEndFrame, 1)
    sounds = after.seen[TTSAudioRawFrame]
    print("asked first:", sounds, "pieces of sound")
    await speak(worker, question)
    await after.until(TTSAudioRawFrame, sounds + 1)
    print("spoken to:", before.heard)
    interrupted = after.seen[InterruptionFrame]
    await speak(worker, question)
    await after.until(InterruptionFrame, interrupted + 1)
    await after.until(LLMFullResponseEndFrame, 2)
    await asyncio.sleep(SILENCE_SECONDS)  # an error that the interruption caused would come now
    print("spoken over:", before.heard)
    if after.failed or before.failed:
        raise SystemExit(f"error: {after.failed or before.failed}")
    if not after.seen[TTSTextFrame] or not before.heard:
        raise SystemExit(f"no words: {dict(after.seen)}")


async def main(url: str, wav: Path) -> None:
    with wave.open(str(wav)) as file:
        assert file.getframerate() == RATE
        question = file.readframes(file.getnframes())
    detection = TurnDetection(silence_duration_ms=500)
    listening = AudioInput(transcription=InputAudioTranscription(), turn_detection=detection)
    service = OpenAIRealtimeLLMService(
        api_key="none",
        base_url=f"{url.replace('http', 'ws', 1)}/realtime",
        settings=OpenAIRealtimeLLMService.Settings(
            system_instruction="Answer in one sentence.",
            session_properties=SessionProperties(audio=AudioConfiguration(input=listening)),
        ),
    )
    said = LLMContextAggregatorPair(LLMContext([{"role": "user", "content": "Say hello."}]))
    before, after = Watcher(), Watcher()
    worker = PipelineWorker(
        Pipeline([said.user(), before, service, after, said.assistant()]),
        params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE),
        cancel_on_idle_timeout=False,
    )
    runner = WorkerRunner()
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    try:
        await asyncio.wait_for(converse(worker, question, before, after), 4 * PATIENCE_SECONDS)
    finally:
        await worker.cancel()
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
