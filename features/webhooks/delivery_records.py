"""The record of a delivery: what is sent, each attempt so far, and how requests see it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from palaver.errors import UNREADABLE
from palaver.late import dataclass
from palaver.schemas.webhooks import DeliveryAttempt, WebhookDelivery
from palaver.store.reading.records import instant, moment
from palaver.store.redis.connection import StreamEntry
from palaver.store.redis.keys import Key
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.webhooks import DeliveryState

from .terms import TYPE_OF_STATUS

log = logging.getLogger("palaver.features.webhooks")

AskedFor = Callable[[str, Mapping[str, str]], "DeliveryRecord"]
"""Reads the id and the fields of an entry. Raises what `UNREADABLE` has."""
_ANSWERS: Final = 3
"""Attempts of a delivery whose answers are kept."""


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """An attempt of a delivery, as it is recorded."""

    at: int
    ms: int
    status: int | None
    error: str | None
    answer: str


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """A delivery, as it is recorded."""

    id: str
    type: str
    at: int
    """ms, by Redis's clock."""
    state: DeliveryState
    """In front of what others wrote: a script changes it in the text."""
    tries: int
    """Attempts since it was last begun."""
    data: dict[str, Any]
    """The content of its body."""
    attempts: tuple[RecordedAttempt, ...]

    @property
    def json(self) -> bytes:
        """The text that is stored."""
        return orjson.dumps(self)

    @classmethod
    def of_json(cls, text: bytes) -> DeliveryRecord:
        """The record that a text says; what newer code knows besides is left out."""
        fields: dict[str, Any] = orjson.loads(text)
        made = {name: fields[name] for name in cls.__slots__ if name in fields}
        made["attempts"] = tuple(RecordedAttempt(**attempt) for attempt in made["attempts"])
        return cls(**made)


def record_of(entry: StreamEntry, asked_for: AskedFor) -> DeliveryRecord | None:
    """The delivery that an entry of an outbox asks for; None if it cannot be read."""
    try:
        fields = {name.decode(): value.decode() for name, value in entry[1].items()}
        return asked_for(entry[0].decode(), fields)
    except UNREADABLE:
        log.error("an event for webhooks cannot be read: %s", entry[0].decode())
        return None


def of_told(told: Key, tag: str) -> AskedFor:
    """Return what reads the events that a feature tells a tenant of."""
    feature = told.partition(":")[2].partition("}")[0]

    def asked_for(entry_id: str, fields: Mapping[str, str]) -> DeliveryRecord:
        record_id, data = f"msg_{feature}_{tag}_{entry_id}", orjson.loads(fields["data"])
        return DeliveryRecord(record_id, fields["type"], int(fields["at"]), "pending", 0, data, ())

    return asked_for


def of_run(entry_id: str, fields: Mapping[str, str]) -> DeliveryRecord:
    """Read an event of a run."""
    about: dict[str, Any] = orjson.loads(fields["about"])
    run_id, sequence = fields["run"], int(fields["sequence"])
    status = about.get("status")
    event_type = "run.action_required" if status is None else TYPE_OF_STATUS[RunStatus(status)]
    if expires_at := about.get("action", {}).get("expires_at"):
        about["action"]["expires_at"] = instant(expires_at).isoformat()
    data = {
        "run_id": run_id,
        "conversation_id": fields["conversation"],
        "sequence": sequence,
        "status": "requires_action",
        **about,
        "links": {"run": f"/v1/runs/{run_id}"},
    }
    return DeliveryRecord(
        f"msg_{run_id.removeprefix('run_')}_{sequence}", event_type, int(fields["at"]), "pending", 0, data, ()
    )


def without_answers(attempts: Sequence[RecordedAttempt]) -> Iterator[RecordedAttempt]:
    """The attempts so far, with the answers of the last ones alone: a delivery is not to grow with what receivers
    say."""
    for behind, attempt in zip(range(len(attempts), 0, -1), attempts, strict=True):
        yield replace(attempt, answer="") if behind >= _ANSWERS else attempt


def shown_delivery(record: DeliveryRecord, next_at: float | None) -> WebhookDelivery:
    return WebhookDelivery(
        id=record.id,
        type=record.type,
        state=record.state,
        created_at=instant(record.at),
        run_id=record.data.get("run_id"),
        data=record.data,
        attempts=list(_attempts(record.attempts)),
        next_attempt_at=moment(next_at),
    )


def _attempts(attempts: Sequence[RecordedAttempt]) -> Iterator[DeliveryAttempt]:
    for each in attempts:
        yield DeliveryAttempt(
            at=instant(each.at), latency_ms=each.ms, status=each.status, error=each.error, answer=each.answer
        )
