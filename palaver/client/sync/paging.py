# Generated from palaver/client/aio/paging.py by `make twin`: change that file, not this one.
"""Lists that the API answers a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

from palaver.client.answers import Page, Response, page_of
from palaver.client.requests.request import PAGE, Request
from palaver.client.sync.transport import ApiTransport


def pages(
    transport: ApiTransport, ask: Callable[[int, str | None], Request], limit: int | None = None
) -> Generator[tuple[Page, Response], None, None]:
    """The pages of a list, each with the answer that brought it: to its end, or until they have ``limit`` entries.

    ``ask`` makes the request for a page: of so many entries, from behind a cursor.
    """
    cursor: str | None = None
    left = limit
    while left is None or left > 0:
        response = transport.call(ask(PAGE if left is None else min(left, PAGE), cursor))
        page = page_of(response)
        yield replace(page, data=page.data[:left]), response
        left = None if left is None else left - len(page.data)
        cursor = page.cursor
        if cursor is None:
            return
