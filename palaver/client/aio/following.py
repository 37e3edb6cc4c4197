"""Events of a run or a conversation as one stream, over as many connections as it takes."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import run_of
from palaver.client.errors import ClientError
from palaver.client.resuming import SILENCE, EventCursor, pieces
from palaver.client.tasks import sleep
from palaver.events import Event


async def follow(
    transport: ApiTransport, cursor: EventCursor, include: str | None = None
) -> AsyncGenerator[Event, None]:
    """The events behind ``cursor``, each once and in order, until nothing comes any more.

    Should the server have lost events that it had sent, ``stream.rewound`` says so, and the events that took their
    place follow.
    """
    while True:
        error: ClientError | None = None
        try:
            async with transport.open(cursor.request(include), SILENCE) as (head, chunks):
                cursor.connected(head)
                async for chunk in chunks:
                    for piece in pieces(chunk):
                        for event in cursor.read(piece):
                            yield event
                        if cursor.finished:
                            return
                        if len(piece) < len(chunk):
                            await sleep(0)
            if (request := cursor.doubt()) is not None:
                cursor.look(run_of(await transport.send(request, transport.timeout)))
        except ClientError as failed:
            error = failed
            if implied := cursor.event_for(failed):
                error = None
                yield implied
        if cursor.finished:
            return
        await sleep(cursor.pause(error))
