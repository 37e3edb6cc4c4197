# Generated from palaver/client/aio/following.py by `make twin`: change that file, not this one.
"""Events of a run or a conversation as one stream, over as many connections as it takes."""

from __future__ import annotations

from collections.abc import Generator

from palaver.client.answers import run_of
from palaver.client.errors import ClientError
from palaver.client.resuming import SILENCE, EventCursor, pieces
from palaver.client.sync.concurrency import sleep
from palaver.client.sync.transport import ApiTransport
from palaver.events import Event


def follow(transport: ApiTransport, cursor: EventCursor, include: str | None = None) -> Generator[Event, None, None]:
    """The events behind ``cursor``, each once and in order, until nothing comes any more.

    Should the server have lost events that it had sent, ``stream.rewound`` says so, and the events that took their
    place follow.
    """
    while True:
        error: ClientError | None = None
        try:
            with transport.open(cursor.request(include), SILENCE) as (head, chunks):
                cursor.connected(head)
                for chunk in chunks:
                    for piece in pieces(chunk):
                        yield from cursor.read(piece)
                        if cursor.finished:
                            return
                        if len(piece) < len(chunk):
                            sleep(0)
            if (request := cursor.doubt()) is not None:
                cursor.look(run_of(transport.send(request, transport.timeout)))
        except ClientError as failed:
            error = failed
            if implied := cursor.event_for(failed):
                error = None
                yield implied
        if cursor.finished:
            return
        sleep(cursor.pause(error))
