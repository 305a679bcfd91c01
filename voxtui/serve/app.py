from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from voxtui import __version__
from voxtui.serve.access import REALTIME_PATH, AccessControl, error_response
from voxtui.serve.endpoints.chat import Chat
from voxtui.serve.endpoints.openapi import openapi
from voxtui.serve.endpoints.speech import SpeechEndpoint
from voxtui.serve.endpoints.transcriptions import ALIAS, Transcriptions, check_model
from voxtui.serve.metrics import Metrics
from voxtui.serve.openai_types import HttpError, failed
from voxtui.serve.page import page_routes
from voxtui.serve.realtime.calls import CALLS_PATH, Calls
from voxtui.serve.realtime.client_secrets import MOST_BYTES, ClientKeys, new_secret
from voxtui.serve.realtime.connection import Sessions
from voxtui.serve.realtime.session_settings import default_settings
from voxtui.serve.realtime.websocket import Realtime
from voxtui.serve.upload import Disconnected, small_body

if TYPE_CHECKING:
    from starlette.requests import Request

    from voxtui.serve.shared_models import Pool
    from voxtui.settings.schema import Config


def model_name(config: Config, brain: str) -> str:
    """Return the name by which clients call the recogniser of `brain`."""
    names = {
        "remote": config.brain.remote.model or "remote",
        "voxtral": config.brain.voxtral.model,
    }
    english = config.brain.language in ("", "en")
    return names.get(brain, "moonshine-tiny-en" if english else "whisper-base")


def chat_model_of(config: Config, brain: str) -> str:
    """Return the name by which clients call the chat model of `brain`."""
    if brain in ("remote", "voxtral"):
        return model_name(config, brain)
    from voxtui.models.installed import chat_model_name

    return chat_model_name(config.brain.embedded.model).rpartition("/")[2].removesuffix(".gguf")


def build_app(
    config: Config, pool: Pool, token: str | None, hosts: frozenset[str], address: str
) -> tuple[AccessControl, Calls]:
    """Return the ASGI application, and the sessions that must end before it does.

    Each request needs the key `token`, unless it is None. `hosts` are the accepted host names
    besides addresses. `address` is where the server listens.
    """
    metrics = Metrics(pool.size)
    started = int(time.time())
    model = model_name(config, pool.brain)
    voices = (config.voice.name,) * (config.voice.engine != "none")
    models = model, chat_model_of(config, pool.brain), *voices

    def json(value: object, status: int = 200) -> Response:
        return Response(msgspec.json.encode(value), status, media_type="application/json")

    async def healthz(request: Request) -> Response:
        return json({"status": "ok"})

    async def readyz(request: Request) -> Response:
        free = pool.size - pool.busy
        return json({"status": "ready", "sessions": pool.size, "free": free, "model": model})

    def described(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": started, "owned_by": "voxtui"}

    async def list_models(request: Request) -> Response:
        listed = [described(name) for name in (*dict.fromkeys(models), ALIAS)]
        return json({"object": "list", "data": listed})

    async def show_model(request: Request) -> Response:
        name = request.path_params["name"]
        check_model(name, *models)
        return json(described(name))

    async def show_metrics(request: Request) -> Response:
        metrics.busy.set(pool.busy)
        metrics.waiting.set(pool.waiting)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    async def show_openapi(request: Request) -> Response:
        return json(openapi(__version__))

    async def create_secret(request: Request) -> Response:
        body = await small_body(request.receive, MOST_BYTES)
        return json(new_secret(body, client_keys, default, config.vad))

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        what = {404: "There is no such path.", 405: "This path does not support the method."}
        message = what.get(error.status_code, f"{error.detail}.")
        return error_response(
            HttpError(error.status_code, message, headers=dict(error.headers or {}))
        )

    async def refused(request: Request, error: Exception) -> Response:
        return error_response(error) if isinstance(error, HttpError) else Response(None, 499)

    async def bug(request: Request, error: Exception) -> Response:
        return error_response(
            failed("Internal error. The standard error of voxtui has its traceback.")
        )

    client_keys = ClientKeys()
    default = default_settings(model, config.voice.name)
    sessions = Sessions(pool, config, default, client_keys, metrics)
    calls = Calls(sessions, address)
    shared = pool, config, models, metrics

    app = Starlette(
        routes=[
            *page_routes(),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", show_metrics),
            Route("/openapi.json", show_openapi),
            Route("/v1/models", list_models),
            Route("/v1/models/{name:path}", show_model),
            Route("/v1/audio/transcriptions", Transcriptions(*shared), methods=["POST"]),
            Route("/v1/chat/completions", Chat(*shared), methods=["POST"]),
            Route("/v1/audio/speech", SpeechEndpoint(*shared), methods=["POST"]),
            WebSocketRoute(REALTIME_PATH, Realtime(sessions)),
            Route(CALLS_PATH, calls.begin, methods=["POST"]),
            Route(f"{CALLS_PATH}/{{call_id}}/hangup", calls.hang_up, methods=["POST"]),
            Route("/v1/realtime/client_secrets", create_secret, methods=["POST"]),
        ],
        exception_handlers={
            HTTPException: http_error,
            HttpError: refused,
            Disconnected: refused,
            500: bug,
        },
    )
    return AccessControl(app, token, hosts, client_keys.get), calls
