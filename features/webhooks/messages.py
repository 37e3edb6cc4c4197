"""The messages that webhooks get: their bodies, and the headers of Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final

import orjson

from palaver.store.reading.records import instant
from palaver.version import __version__
from palaver.vocabulary.webhooks import Format

from .delivery_records import DeliveryRecord
from .terms import OPENAI_TYPES

_AGENT: Final = f"palaver/{__version__}"


def body_of(record: DeliveryRecord, form: Format) -> bytes:
    """The body, the same for each attempt."""
    return orjson.dumps(_openai(record) if form == "openai" else _own(record))


def headers_of(record: DeliveryRecord, body: bytes, at: int, keys: Sequence[bytes]) -> dict[str, str]:
    """The headers of an attempt that is made at that time (Unix seconds): one signature for each of the keys."""
    return {
        "content-type": "application/json",
        "user-agent": _AGENT,
        "webhook-id": record.id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(f"v1,{_signature(record.id, at, body, key)}" for key in keys),
    }


def _signature(message_id: str, at: int, body: bytes, key: bytes) -> str:
    signed = f"{message_id}.{at}.".encode() + body
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _own(record: DeliveryRecord) -> dict[str, Any]:
    return {"type": record.type, "timestamp": instant(record.at).isoformat(), "data": record.data}


def _openai(record: DeliveryRecord) -> dict[str, Any]:
    return {
        "id": record.id.replace("msg_", "evt_", 1),
        "object": "event",
        "created_at": record.at // 1000,
        "type": OPENAI_TYPES[record.type],  # type: ignore[index]
        "data": {"id": f"resp_{record.data['run_id'].removeprefix('run_')}"},
    }
