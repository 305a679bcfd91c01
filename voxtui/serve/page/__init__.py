"""The page at `/`: hold to talk in a browser. Its files are served unchanged."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/line.js": ("line.js", "text/javascript"),
    "/call.js": ("call.js", "text/javascript"),
    "/times.js": ("times.js", "text/javascript"),
    "/words.js": ("words.js", "text/javascript"),
    "/worklet.js": ("worklet.js", "text/javascript"),
}

PAGE_PATHS = tuple(FILES)

HEADERS = {
    # Nothing of another host, no script in the page, and no frame of another page.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "permissions-policy": "microphone=(self)",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",  # the next version may speak another way
}


def page_routes() -> list[Route]:
    def route(path: str, name: str, media_type: str) -> Route:
        body = (files(__name__) / name).read_bytes()

        async def endpoint(request: Request) -> Response:
            return Response(body, headers=HEADERS, media_type=media_type)

        return Route(path, endpoint)

    return [route(path, name, media_type) for path, (name, media_type) in FILES.items()]
