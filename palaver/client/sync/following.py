# Made from palaver/client/aio/following.py by `make twin`: change that file, not this one.
"""A run's events as one stream, over as many connections as it takes."""

from __future__ import annotations

from collections.abc import Generator

from palaver.client import requests
from palaver.client.answers import run_of
from palaver.client.errors import ClientError
from palaver.client.resuming import SILENCE, Place
from palaver.client.sync.concurrency import sleep
from palaver.client.sync.transport import Transport
from palaver.events import Event


def follow(transport: Transport, run_id: str, after: int) -> Generator[Event, None, None]:
    """The events behind ``after``, each once and in order, until the run has finished.

    Should the server have lost events that were told, ``stream.rewound`` says so, and what took their place follows.
    """
    place = Place(run_id, after)
    while True:
        error: ClientError | None = None
        try:
            with transport.open(requests.follow_run(run_id, place.position), SILENCE) as (head, chunks):
                place.connected(head)
                for chunk in chunks:
                    yield from place.read(chunk)
                    if place.finished:
                        return
            if not place.progress and not place.finished:
                place.look(run_of(transport.send(requests.get_run(run_id), transport.timeout)))
        except ClientError as failed:
            error = failed
            if rewound := place.rewound_by(failed):
                error = None
                yield rewound
        if place.finished:
            return
        sleep(place.pause(error))
