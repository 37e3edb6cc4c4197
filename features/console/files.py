"""Files that are read once and served as they are, with what browsers are told about them."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The media type of each kind of file that is served; licences and lists beside them are for who reads the wheel."""
_NAMED: Final = (b'from"preact"', b'from"./preact.mjs"')
"""The one import of a vendored module that names a package, and the address for it: a map of names would have to stand
in the page, where the policy lets no script be."""
_FOREVER: Final = "public, max-age=31536000, immutable"
_ASK: Final = "no-cache"


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder and of those below it that are served, by their relative paths."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in _TYPES)
    return {path.relative_to(folder).as_posix(): path.read_bytes().replace(*_NAMED) for path in found}


def fingerprint(files: Mapping[str, bytes]) -> str:
    """Return a name that other names or contents would not have."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(b"%d %b %d " % (len(name), name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()[:16]


class StaticFile:
    """A file, and the answer to who asks for it."""

    def __init__(self, name: str, content: bytes, *, forever: bool) -> None:
        self._content = content
        self._headers = {
            **_HEADERS,
            "Content-Type": _TYPES[Path(name).suffix],
            "ETag": f'W/"{hashlib.sha256(content).hexdigest()[:32]}"',
            "Cache-Control": _FOREVER if forever else _ASK,
        }

    async def serve(self, request: Request) -> Response:
        """Return the file, or 304 to who has it."""
        if _names(request.headers.get("if-none-match", ""), self._headers["ETag"]):
            return Response(status_code=304, headers=self._headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self._packed, headers={**self._headers, "Content-Encoding": "gzip"})
        return Response(self._content, headers=self._headers)

    @cached_property
    def _packed(self) -> bytes:
        return gzip.compress(self._content, mtime=0)


def _names(tags: str, tag: str) -> bool:
    """Tell whether an ``If-None-Match`` names a tag. It is weak, since a file goes out packed and as it is."""
    return any(each.strip() in (tag, tag.removeprefix("W/"), "*") for each in tags.split(","))
