"""Run pipecat-ai with a key and without a network: `installed` or `tuned`, then the clip."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import common
import numpy as np
from loguru import logger
from pipecat.frames.frames import (
    InputAudioRawFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    ProposedUserStartedSpeakingFrame,
    ProposedUserStoppedSpeakingFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.services.llm_service import LLMService
from pipecat.services.settings import STTSettings
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.turns.user_start import ExternalUserTurnStartStrategy
from pipecat.turns.user_stop import ExternalUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies, UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

logger.remove()
logger.add(sys.stderr, level="ERROR")


class FlushableSTT(SegmentedSTTService):
    @property
    def wants_wav_segments(self):
        return False

    async def run_stt(self, audio):
        await asyncio.sleep(common.STT_SECONDS)
        yield TranscriptionFrame(common.WORDS, "user", "now")


class Model(LLMService):
    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        await self.push_frame(LLMFullResponseStartFrame())
        await asyncio.sleep(common.FIRST_TOKEN_SECONDS)
        for count, text in enumerate([*common.ONE_CLAUSE, *common.REST]):
            if count:
                await asyncio.sleep(common.TOKEN_SECONDS)
            await self.push_frame(LLMTextFrame(text))
        await self.push_frame(LLMFullResponseEndFrame())


class Voice(TTSService):
    def __init__(self):
        super().__init__(
            push_start_frame=True, push_stop_frames=True, sample_rate=common.VOICE_RATE
        )

    async def run_tts(self, text, context_id):
        await asyncio.sleep(common.TTS_SECONDS)
        pcm, step = common.tone().tobytes(), common.VOICE_RATE // 50 * 2
        for begin in range(0, len(pcm), step):
            piece = pcm[begin : begin + step]
            yield TTSAudioRawFrame(piece, common.VOICE_RATE, 1, context_id=context_id)


class Microphone(BaseInputTransport):
    async def start(self, frame):
        await super().start(frame)
        await self.set_transport_ready(frame)


class Speaker(BaseOutputTransport):
    def __init__(self, params, clock):
        super().__init__(params)
        self._heard_by = clock

    async def start(self, frame):
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame):
        if common.is_sound(frame.audio):
            self._heard_by.hear()
        await asyncio.sleep(len(frame.audio) / 2 / frame.sample_rate)
        return True


async def main():
    clock = common.Clock()
    sizes = {"audio_out_10ms_chunks": 1} if common.tuned() else {}
    params = TransportParams(
        audio_in_enabled=True,
        audio_out_enabled=True,
        audio_in_sample_rate=common.SAMPLE_RATE,
        audio_out_sample_rate=common.VOICE_RATE,
        **sizes,
    )
    strategies = ExternalUserTurnStrategies()
    step = common.SAMPLE_RATE // 50
    if common.tuned():
        # Without one it polls for the end of the words without a pause, which occupies a core.
        strategies = UserTurnStrategies(
            start=[ExternalUserTurnStartStrategy()],
            stop=[ExternalUserTurnStopStrategy(timeout=0.002)],
        )
        step //= 2
    microphone = Microphone(params)
    user, assistant = LLMContextAggregatorPair(
        LLMContext(), user_params=LLMUserAggregatorParams(user_turn_strategies=strategies)
    )
    ears = FlushableSTT(settings=STTSettings(model="stub", language=None))
    speaker = Speaker(params, clock)
    worker = PipelineWorker(
        Pipeline([microphone, ears, user, Model(), Voice(), speaker, assistant]),
        params=PipelineParams(
            audio_in_sample_rate=common.SAMPLE_RATE, audio_out_sample_rate=common.VOICE_RATE
        ),
        idle_timeout_secs=None,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await asyncio.sleep(2)

    async def play(pcm):
        at = time.perf_counter()
        for begin in range(0, len(pcm) - step + 1, step):
            at += step / common.SAMPLE_RATE
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            data = pcm[begin : begin + step].tobytes()
            await microphone.push_audio_frame(InputAudioRawFrame(data, common.SAMPLE_RATE, 1))

    pcm = common.load_pcm()
    loop = asyncio.get_running_loop()
    common.tell(ready=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        clock.begin()
        await worker.queue_frame(VADUserStartedSpeakingFrame())
        await worker.queue_frame(ProposedUserStartedSpeakingFrame())
        await play(pcm)
        clock.release()
        await worker.queue_frame(VADUserStoppedSpeakingFrame())
        await worker.queue_frame(ProposedUserStoppedSpeakingFrame())
        for _ in range(50):
            if clock.sound is not None:
                break
            await play(np.zeros(common.SAMPLE_RATE // 10, np.int16))
        common.tell(ms=clock.ms)
    running.cancel()
    os._exit(0)


asyncio.run(main())
