"""Counters and histograms for Prometheus. No words, no names, no addresses."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Upper bounds of the buckets in seconds."""


class Metrics:
    def __init__(self, sessions: int) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "voxtui_requests", "Answered requests.", ("endpoint", "status"), registry=self._registry
        )
        self._stages = Histogram(
            "voxtui_stage_seconds",
            "Time of a stage of a request.",
            ("endpoint", "stage"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._audio = Counter(
            "voxtui_audio_seconds", "Seconds of sound.", ("endpoint",), registry=self._registry
        )
        Gauge("voxtui_sessions", "Sessions at once.", registry=self._registry).set(sessions)
        self.busy = Gauge("voxtui_sessions_busy", "Sessions in use.", registry=self._registry)
        self.waiting = Gauge("voxtui_queue", "Requests that wait.", registry=self._registry)

    def answered(self, endpoint: str, status: int) -> None:
        self._requests.labels(endpoint, str(status)).inc()

    def took(self, endpoint: str, audio_seconds: float, **stages: float) -> None:
        self._audio.labels(endpoint).inc(audio_seconds)
        for stage, seconds in stages.items():
            self._stages.labels(endpoint, stage).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
