"""Run livekit-agents with a key and without a server: `installed` or `tuned`, then the clip."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time

import common
import numpy as np
from livekit import rtc
from livekit.agents import Agent, AgentSession, llm, stt, tts, utils
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN
from livekit.agents.voice.io import AudioInput, AudioOutput, AudioOutputCapabilities

logging.disable(logging.WARNING)


class FlushableSTT(stt.STT):
    """A streaming recogniser with a flush command, the fastest kind for this framework."""

    def __init__(self):
        super().__init__(
            capabilities=stt.STTCapabilities(
                streaming=True, interim_results=False, manual_flush=True
            )
        )

    async def _recognize_impl(self, *args, **options):
        raise NotImplementedError

    def stream(self, *, language=NOT_GIVEN, conn_options=DEFAULT_API_CONNECT_OPTIONS):
        return Hearing(stt=self, conn_options=conn_options)


class Hearing(stt.RecognizeStream):
    async def _run(self):
        async for item in self._input_ch:
            if not isinstance(item, self._FlushSentinel):
                continue
            await asyncio.sleep(common.STT_SECONDS)
            words = stt.SpeechData(language="en", text=common.WORDS, confidence=1.0)
            kind = stt.SpeechEventType.FINAL_TRANSCRIPT
            self._event_ch.send_nowait(stt.SpeechEvent(type=kind, alternatives=[words]))


class Model(llm.LLM):
    def chat(self, *, chat_ctx, tools=None, conn_options=DEFAULT_API_CONNECT_OPTIONS, **options):
        return Answer(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class Answer(llm.LLMStream):
    async def _run(self):
        await asyncio.sleep(common.FIRST_TOKEN_SECONDS)
        for count, text in enumerate([*common.ONE_CLAUSE, *common.REST]):
            if count:
                await asyncio.sleep(common.TOKEN_SECONDS)
            delta = llm.ChoiceDelta(role="assistant", content=text)
            self._event_ch.send_nowait(llm.ChatChunk(id="answer", delta=delta))


class Voice(tts.TTS):
    def __init__(self):
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=False),
            sample_rate=common.VOICE_RATE,
            num_channels=1,
        )

    def synthesize(self, text, *, conn_options=DEFAULT_API_CONNECT_OPTIONS):
        return Speech(tts=self, input_text=text, conn_options=conn_options)


class Speech(tts.ChunkedStream):
    async def _run(self, output_emitter):
        output_emitter.initialize(
            request_id="speech",
            sample_rate=common.VOICE_RATE,
            num_channels=1,
            mime_type="audio/pcm",
        )
        await asyncio.sleep(common.TTS_SECONDS)
        output_emitter.push(common.tone().tobytes())
        output_emitter.flush()


class Microphone(AudioInput):
    def __init__(self):
        super().__init__(label="microphone")
        self.frames = utils.aio.Chan()

    async def __anext__(self):
        return await self.frames.__anext__()


class Speaker(AudioOutput):
    def __init__(self, clock):
        super().__init__(
            label="speaker",
            capabilities=AudioOutputCapabilities(pause=False),
            sample_rate=common.VOICE_RATE,
        )
        self._clock = clock
        self._queued = 0.0

    async def capture_frame(self, frame):
        await super().capture_frame(frame)
        if common.is_sound(bytes(frame.data)):
            self._clock.hear()
        if not self._queued:
            self.on_playback_started(created_at=time.time())
        self._queued += frame.duration

    def flush(self):
        super().flush()
        self._played(wait=True, interrupted=False)

    def clear_buffer(self):
        self._played(wait=False, interrupted=True)

    def _played(self, wait, interrupted):
        seconds, self._queued = self._queued, 0.0
        if seconds:
            asyncio.get_running_loop().call_later(
                seconds if wait else 0,
                lambda: self.on_playback_finished(
                    playback_position=seconds, interrupted=interrupted
                ),
            )


async def main():
    clock = common.Clock()
    turns = {"turn_detection": "manual"}
    frame = common.SAMPLE_RATE // 50
    flush = {}
    if common.tuned():
        turns["endpointing"] = {"min_delay": 0.0, "max_delay": 0.0}
        frame //= 2
        flush = {"stt_flush_duration": 0.0}
    session = AgentSession(
        stt=FlushableSTT(), llm=Model(), tts=Voice(), turn_handling=turns, aec_warmup_duration=None
    )
    microphone = Microphone()
    session.input.audio = microphone
    session.output.audio = Speaker(clock)
    await session.start(Agent(instructions="Answer."))
    await asyncio.sleep(1)

    async def play(pcm):
        at = time.perf_counter()
        for begin in range(0, len(pcm) - frame + 1, frame):
            at += frame / common.SAMPLE_RATE
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            data = pcm[begin : begin + frame].tobytes()
            microphone.frames.send_nowait(
                rtc.AudioFrame(
                    data=data,
                    sample_rate=common.SAMPLE_RATE,
                    num_channels=1,
                    samples_per_channel=frame,
                )
            )

    pcm = common.load_pcm()
    loop = asyncio.get_running_loop()
    common.tell(ready=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        clock.begin()
        await play(pcm)
        clock.release()
        session.commit_user_turn(**flush)
        for _ in range(50):
            if clock.sound is not None:
                break
            await play(np.zeros(common.SAMPLE_RATE // 10, np.int16))
        common.tell(ms=clock.ms)
    os._exit(0)


asyncio.run(main())
