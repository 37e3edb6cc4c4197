"""A run's events as one stream, over as many connections as it takes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from palaver.client import patience, requests
from palaver.client.answers import event_of, run_of, unexpected
from palaver.client.errors import APIError, ClientError
from palaver.client.flow import Emit, Lost, Open, Read, Response, Send, Sleep, Stream
from palaver.client.sse import SSEParser
from palaver.events import EventKind
from palaver.models import Event, Run

SILENCE: Final = 45.0
"""Seconds without a byte after which a connection counts as dead: three of the server's keep-alives."""
RECONNECT: Final = 1.0
"""Seconds before a reconnect, unless the server says ``retry:``."""
OUTAGE: Final = 300.0
"""Seconds without a byte, once connected, after which the stream gives up."""


def follow(url: str, timeout: float, now: Callable[[], float], run_id: str, after: int) -> Stream[Event]:
    """Emit the events behind ``after``, each once and in order, until the run has finished.

    Should the server have lost events that were emitted, ``stream.rewound`` says so, and what took their place follows.
    """
    position, reconnect, failures = after, RECONNECT, 0
    connected, down_since = False, None
    while True:
        request = requests.follow_run(run_id, position)
        answer: Response | Lost = yield Open(request, timeout, SILENCE)
        error: ClientError | None = None
        progress = False
        if isinstance(answer, Lost) or not answer.ok:
            error = patience.failure(url, request, answer)
            if position > after and isinstance(error, APIError) and error.code == "invalid_cursor":
                # The position is the server's own, and it does not know it any more: all of it is in doubt.
                data = {"from": 1, "to": position}
                position, after, error, progress = 0, 0, None, True
                yield Emit(Event(run_id=run_id, seq=0, at=datetime.now(UTC), type=EventKind.STREAM_REWOUND, data=data))
        elif answer.status == 204:
            return
        elif not answer.headers.get("content-type", "").startswith("text/event-stream"):
            raise unexpected(answer)
        else:
            connected, parser = True, SSEParser()
            while chunk := (yield Read()):
                if isinstance(chunk, Lost):
                    error = patience.failure(url, request, chunk)
                    break
                failures, down_since = 0, None
                for frame in parser.feed(chunk):
                    event = event_of(frame, answer, run_id, position)
                    if event.type == EventKind.STREAM_REWOUND:
                        position = min(position, event.data["from"] - 1)
                    elif frame.id:
                        if event.seq <= position:
                            continue
                        position, progress = event.seq, True
                    yield Emit(event)
                    if event.type == EventKind.RUN_FINISHED:
                        return
            reconnect = reconnect if parser.retry is None else parser.retry
            if error is None and not progress:
                request = requests.get_run(run_id)
                answer = yield Send(request, timeout)
                if isinstance(answer, Lost) or not answer.ok:
                    error = patience.failure(url, request, answer)
                elif _nothing_behind(position, run_of(answer)):
                    return
        failures += 1
        down_since = now() if down_since is None else down_since
        gone = now() - down_since > OUTAGE if connected else failures > patience.RETRIES
        if error is not None and (gone or not patience.passing(error)):
            raise error
        backoff = patience.capped(failures, error)
        yield Sleep(reconnect if progress else max(reconnect, backoff) if connected else backoff)


def _nothing_behind(position: int, run: Run) -> bool:
    """Whether the stream ended because it was all told before: then no last event comes any more."""
    return run.status.terminal and run.last_event_id == position
