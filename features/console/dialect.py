"""The console as a guest: a prefix with files below it, and problems that look as those of ``/v1``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response

from api.http.auth import routed_path
from api.http.problem_json import MEDIA_TYPE, PROBLEM, respond
from api.http.problems import Problem
from api.http.requests import request_id_of
from api.kit.dialects import Dialect, Page
from api.kit.openapi import ErrorFormat
from palaver.feature import switched_on

from .files import StaticFile, fingerprint, read_folder

PREFIX: Final = "/console"
_FOLDER: Final = Path(__file__).with_name("static")
_INDEX: Final = "index.html"
_NAMES: Final = re.compile(r'^  \["([a-z]+)",', re.MULTILINE)
"""The lines of the table of pages about those that are not of one thing."""
_ROW: Final = re.compile(r'^  \[[^\n]*import\("\./([^"]+)"\)(?:, "(\w+)")?\],\n', re.MULTILINE)
"""A line of the table of pages: its module, and the feature that it is of."""
_TABLE: Final = "pages.js"
_PLACE: Final = b"{assets}"
"""The words of the index in whose place the folder of all other files is put."""


def _respond(problem: Problem, request: HTTPConnection) -> Response:
    return respond(problem, request.scope["path"], request_id_of(request))


def _without(files: Mapping[str, bytes], there: Collection[str]) -> Mapping[str, bytes]:
    """Return the files without the pages of features that are not there, or off."""
    rows = [*_ROW.finditer(files[_TABLE].decode())]
    gone = {row[1] for row in rows if row[2] and row[2] not in there}
    table = _ROW.sub(lambda row: "" if row[1] in gone else row[0], files[_TABLE].decode())
    return {name: content for name, content in files.items() if name not in gone} | {_TABLE: table.encode()}


def _pages(files: Mapping[str, bytes]) -> dict[str, Page]:
    """Return what is served, by its path. Modules name each other by relative addresses, so all that the index leads to
    is in one folder, whose name follows from what is in it: a browser may keep it for ever."""
    folder = f"{PREFIX}/assets/{fingerprint(files)}"
    served: dict[str, Page] = {
        f"{folder}/{name}": StaticFile(name, content, forever=True).serve
        for name, content in files.items()
        if name != _INDEX
    }
    # Relative, as all addresses: a proxy may have taken something off the beginning of the path.
    index = files[_INDEX].replace(_PLACE, folder.removeprefix("/").encode())
    leads = {
        f"{PREFIX}/{name}{below}": _lead for name in _NAMES.findall(files[_TABLE].decode()) for below in ("", "/*")
    }
    return {PREFIX: StaticFile(_INDEX, index, forever=False).serve, f"{PREFIX}/": _lead, **leads, **served}


async def _lead(request: Request) -> Response:
    """Lead to the page of a path: the console has it behind the ``#``."""
    rest = routed_path(request.scope).removeprefix(f"{PREFIX}/")
    query = f"?{request.url.query}" if request.url.query else ""
    page = f"#/{quote(rest.rstrip('/'))}{query}" if rest else ""
    return RedirectResponse(f"{'../' * (rest.count('/') + 1)}{PREFIX.removeprefix('/')}{page}")


CONSOLE: Final = Dialect(
    "console",
    PREFIX,
    _respond,
    ErrorFormat(MEDIA_TYPE, "Problem", PROBLEM),
    pages=_pages(_without(read_folder(_FOLDER), switched_on())),
)
