"""The OpenAPI document in a viewer that sends requests: Swagger UI, from this server alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
_FILES: Final = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
_LASTS: Final = "max-age=3600"
_START: Final = """\
SwaggerUIBundle({
  url: "openapi.json", dom_id: "#viewer", deepLinking: true, tryItOutEnabled: true, displayRequestDuration: true,
  docExpansion: "list", defaultModelsExpandDepth: 0, validatorUrl: null, persistAuthorization: false,
});
"""
"""A key that is entered is forgotten with the page."""
_PAGE: Final = """\
<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>
<title>{title}: API</title>
<link rel=stylesheet href='docs/swagger-ui.css'>
<div id=viewer></div>
<noscript>Without scripts there is the document: <a href='openapi.json'>openapi.json</a>.</noscript>
<script src='docs/swagger-ui-bundle.js'></script><script src='docs/start.js'></script>
</html>
"""


def add_pages(app: Starlette, title: str, document: Callable[[], dict[str, Any]]) -> None:
    """Serve the document and its page, and lead to that from ``/``."""

    async def describe(request: Request) -> Response:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return JSONResponse(document() | ({"servers": [{"url": root}]} if root else {}))

    async def docs(request: Request) -> Response:
        return HTMLResponse(_PAGE.format(title=escape(title)), headers=_HEADERS)

    app.add_route("/openapi.json", describe)
    app.add_route("/", _lead)
    app.add_route("/docs", docs)
    app.add_route("/docs/start.js", _start)
    for name in _FILES:
        app.add_route(f"/docs/{name}", _file)


async def _lead(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/docs")


async def _start(request: Request) -> Response:
    return Response(_START, headers={**_HEADERS, "Cache-Control": _LASTS}, media_type="text/javascript")


async def _file(request: Request) -> Response:
    name = request.scope["path"].rpartition("/")[2]
    return FileResponse(_folder() / name, headers={**_HEADERS, "Cache-Control": _LASTS}, media_type=_FILES[name])


@cache
def _folder() -> Path:
    """Return the folder of the files. Their package is looked for and not imported: it would patch nothing, and cost
    memory."""
    spec = find_spec("fastapi_offline")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)), "static")
