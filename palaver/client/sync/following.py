# Made from palaver/client/aio/following.py by `make twin`: change that file, not this one.
"""Events of a run or a conversation as one stream, over as many connections as it takes."""

from __future__ import annotations

from collections.abc import Generator

from palaver.client import requests
from palaver.client.answers import run_of
from palaver.client.errors import ClientError
from palaver.client.resuming import SILENCE, ConversationCursor, EventCursor
from palaver.client.sync.concurrency import sleep
from palaver.client.sync.transport import Transport
from palaver.events import Event


def follow(transport: Transport, run_id: str, after: int, include: str | None = None) -> Generator[Event, None, None]:
    """The events behind ``after``, each once and in order, until the run has finished.

    Should the server have lost events that were told, ``stream.rewound`` says so, and what took their place follows.
    """
    cursor = EventCursor(run_id, after)
    while True:
        error: ClientError | None = None
        try:
            with transport.open(requests.follow_run(run_id, cursor.position, include), SILENCE) as (head, chunks):
                cursor.connected(head)
                for chunk in chunks:
                    yield from cursor.read(chunk)
                    if cursor.finished:
                        return
            if not cursor.progress and not cursor.finished:
                cursor.look(run_of(transport.send(requests.get_run(run_id), transport.timeout)))
        except ClientError as failed:
            error = failed
            if rewound := cursor.rewound_by(failed):
                error = None
                yield rewound
        if cursor.finished:
            return
        sleep(cursor.pause(error))


def follow_conversation(
    transport: Transport, conversation_id: str, after: str, include: str | None = None
) -> Generator[Event, None, None]:
    """The events of a conversation behind the one of the id ``after``, until it is deleted, also meanwhile.

    Should the server have lost events that were told, ``stream.rewound`` says so, and what took their place follows.
    """
    cursor = ConversationCursor(conversation_id, after)
    while True:
        error: ClientError | None = None
        try:
            request = requests.follow_conversation(conversation_id, cursor.place, include)
            with transport.open(request, SILENCE) as (head, chunks):
                cursor.connected(head)
                for chunk in chunks:
                    yield from cursor.read(chunk)
                    if cursor.finished:
                        return
        except ClientError as failed:
            error = failed
            if said := cursor.rewound_by(failed) or cursor.deleted_by(failed):
                error = None
                yield said
        if cursor.finished:
            return
        sleep(cursor.pause(error))
