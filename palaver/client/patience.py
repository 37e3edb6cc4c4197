"""When the SDK tries again, and after how long."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from palaver.client.answers import error_of
from palaver.client.errors import APIError, ClientError, ConnectionFailed
from palaver.client.flow import Flow, Lost, Request, Response, Send, Sleep

RETRIES: Final = 3
"""Tries after the first one: with the back-off below about two seconds, an API's restart."""
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 8.0
"""Seconds; doubled each time in between."""
LONGEST_OBEYED: Final = 30.0
"""Seconds that a call waits because ``Retry-After`` says so; beyond that its caller is told at once."""

NO_ROOM: Final = frozenset({"too_many_runs", "store_nearly_full"})
"""Codes of the API's word that nothing was done and that it will have room again: they are waited out."""


def failure(url: str, request: Request, answer: Response | Lost) -> ClientError:
    """The error that an answer without success means."""
    error = ConnectionFailed(url, answer.reason) if isinstance(answer, Lost) else error_of(answer)
    error.run_id = error.run_id or request.run_id
    return error


def passing(error: ClientError) -> bool:
    """Whether the same request may succeed later: network errors, 408, 429 and 5xx (501 will not change)."""
    if isinstance(error, APIError):
        return error.status in (408, 429) or (error.status >= 500 and error.status != 501)
    return isinstance(error, ConnectionFailed)


def pause(failures: int, error: ClientError | None = None) -> float:
    """Seconds to wait after so many failures in a row: as the server asked, else doubling, with jitter."""
    asked = error.retry_after if isinstance(error, APIError) else None
    if asked is not None:
        return asked * random.uniform(1.0, 1.1)
    longest = min(FIRST_PAUSE * 2.0 ** min(max(failures - 1, 0), 16), LONGEST_PAUSE)
    return random.uniform(longest / 2, longest)


def capped(failures: int, error: ClientError | None = None) -> float:
    """`pause`, at most ``LONGEST_OBEYED``: for loops that go on anyway and cost one small request a time."""
    return min(pause(failures, error), LONGEST_OBEYED)


def call(
    url: str,
    request: Request,
    timeout: float,
    room_within: float,
    on_wait: Callable[[ClientError, float], None] | None = None,
) -> Flow[Response]:
    """Send, and again while that is safe and may help. Returns a success, raises `ClientError` otherwise.

    For room it is waited ``room_within`` seconds; ``on_wait`` is told of each wait. What is not there when it is
    deleted the second time was deleted the first time: that is a success.
    """
    failures = 0
    for_room = 0.0
    perhaps_done = False
    while True:
        answer: Response | Lost = yield Send(request, timeout)
        if isinstance(answer, Response):
            deleted = request.method == "DELETE" and answer.status == 404 and perhaps_done
            if answer.ok or deleted:
                return answer
        perhaps_done |= answer.sent if isinstance(answer, Lost) else answer.status >= 500
        error = failure(url, request, answer)
        room = isinstance(error, APIError) and error.code in NO_ROOM
        failures += not room
        wait = pause(failures, error)
        if room:
            wait = max(wait, FIRST_PAUSE)
            for_room += wait
        given_up = for_room > room_within if room else failures > RETRIES
        if given_up or not _again(request, answer, error) or wait > LONGEST_OBEYED * 1.1:
            raise error
        if on_wait is not None:
            on_wait(error, wait)
        yield Sleep(wait)


def _again(request: Request, answer: Response | Lost, error: ClientError) -> bool:
    if request.repeatable:
        return passing(error)
    return not answer.sent if isinstance(answer, Lost) else answer.status in (429, 503)
