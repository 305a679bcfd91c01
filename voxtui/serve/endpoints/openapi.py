"""Describe the server for `/openapi.json`, from the types of its requests."""

from __future__ import annotations

from typing import Any

import msgspec

from voxtui.serve.endpoints.chat_completion import ChatCompletion
from voxtui.serve.endpoints.speech import MEDIA
from voxtui.serve.endpoints.transcriptions import FORMATS, TIMES
from voxtui.serve.openai_types import ErrorBody, SpeechRequest, Transcript

REFUSALS = (400, 401, 403, 404, 408, 413, 429, 500, 503, 507)


def openapi(version: str) -> dict[str, Any]:
    """Return the description of the HTTP paths, in OpenAPI 3.1."""
    types = ErrorBody, Transcript, ChatCompletion, SpeechRequest
    (error, transcript, chat, speech), components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    anything, text = {"type": "object"}, {"type": "string"}
    json, events = "application/json", "text/event-stream"  # the latter's schema is of each event
    form = {
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "model": text,
            "response_format": {"enum": list(FORMATS)},
            "stream": {"enum": ["true", "false"]},
            "language": text,
            "timestamp_granularities[]": {"enum": list(TIMES)},
        },
    }

    def content(*media: str, **schemas: Any) -> dict[str, Any]:
        return {
            **{f"application/{kind}": {"schema": schema} for kind, schema in schemas.items()},
            **{kind: {"schema": anything if kind == events else text} for kind in media},
        }

    def operation(summary: str, answer: dict[str, Any]) -> dict[str, Any]:
        refused = {"description": "refused", "content": content(json=error)}
        answers = {str(status): refused for status in REFUSALS}
        answers["200"] = {"description": summary, "content": answer}
        return {"summary": summary, "responses": answers}

    def get(summary: str, *media: str) -> dict[str, Any]:
        return {"get": operation(summary, content(*media) or content(json=anything))}

    def post(summary: str, answer: dict[str, Any], media: str, schema: Any) -> dict[str, Any]:
        body = {"required": True, "content": {media: {"schema": schema}}}
        return {"post": {**operation(summary, answer), "requestBody": body}}

    words = content("text/plain", "text/vtt", events, json=transcript)
    return {
        "openapi": "3.1.0",
        "info": {"title": "voxtui", "version": version},
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
        "paths": {
            "/healthz": get("The server runs"),
            "/readyz": get("The models are loaded"),
            "/metrics": get("Counters and times for Prometheus", "text/plain"),
            "/openapi.json": get("This description"),
            "/v1/models": get("The models"),
            "/v1/audio/transcriptions": post("The words", words, "multipart/form-data", form),
            "/v1/chat/completions": post(
                "The answer to texts and sounds", content(events, json=anything), json, chat
            ),
            "/v1/audio/speech": post("The sound", content(events, *MEDIA.values()), json, speech),
        },
    }
