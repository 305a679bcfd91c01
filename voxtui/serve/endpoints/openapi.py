"""The description of the server for `/openapi.json`."""

from __future__ import annotations

from typing import Any

from voxtui.serve.endpoints.speech import MEDIA
from voxtui.serve.endpoints.transcriptions import FORMATS
from voxtui.serve.openai_types import MOST_SPOKEN

ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}

TRANSCRIPT: dict[str, Any] = {
    "type": "object",
    "required": ["text", "usage"],
    "properties": {"text": {"type": "string"}, "usage": {"type": "object"}},
}


def openapi(version: str) -> dict[str, Any]:
    """Return the description of the HTTP paths, in OpenAPI 3.1."""

    def json(schema: dict[str, Any]) -> dict[str, Any]:
        return {"application/json": {"schema": schema}}

    def answers(description: str, content: dict[str, Any], *errors: int) -> dict[str, Any]:
        refusals = {
            str(status): {"description": "refused", "content": json(ERROR)}
            for status in (401, 403, *errors)
        }
        return {"200": {"description": description, "content": content}, **refusals}

    def get(description: str, content: dict[str, Any]) -> dict[str, Any]:
        return {"get": {"summary": description, "responses": answers(description, content)}}

    anything: dict[str, Any] = {"type": "object"}
    text = {"schema": {"type": "string"}}
    transcription = {
        "type": "object",
        "required": ["file"],
        "properties": {
            "model": {"type": "string"},
            "response_format": {"enum": list(FORMATS)},
            "stream": {"enum": ["true", "false"]},
            "language": {"type": "string"},
            "file": {"type": "string", "format": "binary"},
        },
    }
    speech = {
        "type": "object",
        "required": ["input"],
        "properties": {
            "input": {"type": "string", "minLength": 1, "maxLength": MOST_SPOKEN},
            "model": {"type": "string"},
            "voice": {"type": "string"},
            "response_format": {"enum": list(MEDIA)},
            "speed": {"type": "number", "minimum": 0.25, "maximum": 4},
        },
    }
    message = {
        "type": "object",
        "required": ["role"],
        "properties": {"role": {"enum": ["system", "developer", "user", "assistant"]}},
    }
    chat = {
        "type": "object",
        "required": ["messages"],
        "properties": {
            "messages": {"type": "array", "minItems": 1, "items": message},
            "model": {"type": "string"},
            "stream": {"type": "boolean"},
            "max_tokens": {"type": "integer", "minimum": 1},
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "voxtui", "version": version},
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
        "paths": {
            "/healthz": get("The server runs", json(anything)),
            "/readyz": get("The models are loaded", json(anything)),
            "/metrics": get("Counters and times for Prometheus", {"text/plain": text}),
            "/openapi.json": get("This description", json(anything)),
            "/v1/models": get("The models", json(anything)),
            "/v1/audio/transcriptions": {
                "post": {
                    "summary": "Speech to text",
                    "requestBody": {
                        "required": True,
                        "content": {"multipart/form-data": {"schema": transcription}},
                    },
                    "responses": answers(
                        "The words",
                        {
                            **json(TRANSCRIPT),
                            "text/plain": text,
                            "text/vtt": text,
                            "text/event-stream": text,
                        },
                        400,
                        404,
                        408,
                        413,
                        429,
                        500,
                    ),
                }
            },
            "/v1/chat/completions": {
                "post": {
                    "summary": "An answer to texts and sounds",
                    "requestBody": {"required": True, "content": json(chat)},
                    "responses": answers(
                        "The answer",
                        {**json(anything), "text/event-stream": text},
                        400,
                        404,
                        408,
                        413,
                        429,
                        500,
                    ),
                }
            },
            "/v1/audio/speech": {
                "post": {
                    "summary": "Text to speech",
                    "requestBody": {"required": True, "content": json(speech)},
                    "responses": answers(
                        "The sound",
                        {kind: {"schema": {"type": "string"}} for kind in MEDIA.values()},
                        400,
                        404,
                        408,
                        413,
                        429,
                        500,
                    ),
                }
            },
        },
    }
