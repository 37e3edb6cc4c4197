"""The retries of the SDK: which requests it sends again, and after how long."""

from __future__ import annotations

import random
from typing import Final

from palaver.client.errors import APIError, ClientError, ConnectionFailed
from palaver.client.requests.request import Request

RETRIES: Final = 3
"""Tries after the first one: with the back-off below about two seconds, an API's restart."""
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 8.0
"""Seconds; doubled each time in between."""
LONGEST_OBEYED: Final = 30.0
"""Seconds that a call waits because ``Retry-After`` says so; for longer waits its caller gets the error at once."""

NO_ROOM: Final = frozenset({"too_many_runs", "tenant_queue_full", "store_nearly_full"})
"""Codes of the API's word that nothing was done and that it will have room again: they are waited out."""


def passing(error: ClientError) -> bool:
    """Tell whether the same request may succeed later: network errors, 408, 429 and 5xx (501 will not change)."""
    if isinstance(error, APIError):
        return error.status in (408, 429) or (error.status >= 500 and error.status != 501)
    return isinstance(error, ConnectionFailed)


def pause(failures: int, error: ClientError | None = None) -> float:
    """Seconds to wait after so many failures in a row: as the server asked, else doubling, with jitter."""
    delay = error.retry_after if isinstance(error, APIError) else None
    if delay is not None:
        return delay * random.uniform(1.0, 1.1)
    longest = min(FIRST_PAUSE * 2.0 ** min(max(failures - 1, 0), 16), LONGEST_PAUSE)
    return random.uniform(longest / 2, longest)


def bearable(failures: int, error: ClientError | None = None) -> float:
    """`pause`, at most ``LONGEST_OBEYED``: for loops that go on anyway and cost one small request a time.

    Raises:
        ClientError: ``error``, which will not pass.
    """
    if error is not None and not passing(error):
        raise error
    return min(pause(failures, error), LONGEST_OBEYED)


class Tries:
    """The tries of one request. For room it is waited ``room_within`` seconds."""

    def __init__(self, request: Request, room_within: float) -> None:
        self._request = request
        self._room_within = room_within
        self._failures = 0
        self._for_room = 0.0
        self._perhaps_done = False

    def pause_after(self, error: ClientError) -> float:
        """Seconds to wait before the next try.

        Raises:
            ClientError: ``error``: another try is not safe, or would not help.
        """
        again = self._again(error)
        self._perhaps_done |= error.perhaps_done
        error.perhaps_done = self._perhaps_done
        room = isinstance(error, APIError) and error.code in NO_ROOM
        self._failures += not room
        wait = pause(self._failures, error)
        if room:
            wait = max(wait, FIRST_PAUSE)
            self._for_room += wait
        given_up = self._for_room > self._room_within if room else self._failures > RETRIES
        if given_up or not again or wait > LONGEST_OBEYED * 1.1:
            raise error
        return wait

    def _again(self, error: ClientError) -> bool:
        if self._request.repeatable:
            return passing(error)
        return error.status in (429, 503) if isinstance(error, APIError) else not error.perhaps_done
