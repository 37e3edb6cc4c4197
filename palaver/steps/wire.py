"""The form of a delivery on the broker, for publishers and workers alike: Celery's protocol 2, ids only.

Messages are not signed. A client that may write to the broker may write anything, so a reader takes the four ids out of
a message and builds the message for Celery anew from them: nothing else in it reaches Celery.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Any, Final

import orjson

from palaver.secrets.redaction import redact
from palaver.steps.leases import Delivery
from palaver.vocabulary.ids import call_of, is_id
from palaver.vocabulary.step_kinds import KINDS, MODEL, REMOTE, kind_of, queue_in_broker

ORIGIN: Final = f"palaver@{socket.gethostname()}"
CONTENT_TYPE: Final = "application/json"
CONTENT_ENCODING: Final = "utf-8"
_EMBED: Final = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
_STEP: Final = re.compile(r"[1-9][0-9]{0,8}(/[A-Za-z0-9_-]{1,64})?")
_NAMES: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,265}( for [^\s\x00-\x1f\x7f]{1,64})?")
"""A title: the names of a model or a tool, and of an agent."""
_TITLE: Final = "title"
_HIGHEST: Final = 2**53
_SCRIPTS: Final = "palaver@redis"
"""The origin of what scripts send."""
_NO_MORE: Final[Mapping[str, object]] = {
    "eta": None,
    "expires": None,
    "group": None,
    "retries": 0,
    "timelimit": [None, None],
}
"""Headers with which a delivery never asks Celery to wait, to give up, or to gather."""


def headers_of(delivery: Delivery, origin: str | None = None) -> dict[str, Any]:
    """The headers of the message, sent by ``origin``."""
    title = redact(delivery.title)
    return {
        "lang": "py",
        "task": delivery.task_name,
        "id": delivery.task_id,
        "root_id": None,
        "parent_id": None,
        # Flower cuts it short, and has the ids beside it.
        "argsrepr": title or f"{delivery.run_id} step {delivery.step}",
        "kwargsrepr": f"palaver show {delivery.run_id}",
        _TITLE: title,
        "origin": origin,
        "ignore_result": True,
        "shadow": None,
        **_NO_MORE,
    }


def payload_of(delivery: Delivery) -> list[Any]:
    """Return the body of the message: arguments, no keywords, and nothing to do afterwards."""
    return [[delivery.run_id, delivery.conversation_id, delivery.step, delivery.number], {}, _EMBED]


def body_of(delivery: Delivery) -> str:
    """The body of the message."""
    return orjson.dumps(payload_of(delivery)).decode()


def in_redis(delivery: Delivery, origin: str = ORIGIN) -> bytes:
    """The message as kombu keeps it in the list of its queue, in a broker that is a Redis. Its body is as it is, not in
    base64: scripts write such messages, too."""
    return orjson.dumps(
        {
            "body": body_of(delivery),
            "content-encoding": CONTENT_ENCODING,
            "content-type": CONTENT_TYPE,
            "headers": headers_of(delivery, origin),
            "properties": {
                "correlation_id": delivery.task_id,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": delivery.queue},
                "priority": 0,
                "body_encoding": None,
                # kombu wants one; the reader of the message gives it one of its own (workers/broker/reading.py).
                "delivery_tag": delivery.task_id,
            },
        }
    )


def message_templates() -> Mapping[str, str]:
    """Return the message of `in_redis` by its kind, for scripts: with ``@QUEUE@``, ``@RUN@``, ``@CONVERSATION@``,
    ``@STEP@``, ``@CALL@`` (of a call), ``@NUMBER@`` and ``@TITLE@``, of which none may be empty, in their places. That
    of `REMOTE` stands behind the name of its workers' kind with a slash."""
    templates = {kind.name: _template(kind.queue, "@STEP@" if kind.asks_model else "@STEP@/@CALL@") for kind in KINDS}
    return {**templates, f"{MODEL.name}/": _template(REMOTE.queue, "@STEP@/@CALL@")}


def _template(queue: str, step: str) -> str:
    number: Any = "@NUMBER@"
    delivery = Delivery(queue, "@RUN@", "@CONVERSATION@", step, number, "@TITLE@")
    message = in_redis(delivery, _SCRIPTS).decode().replace(f'"routing_key":"{queue}"', '"routing_key":"@QUEUE@"')
    # In the body, text within text, it is to be a number.
    return message.replace(r"\"@NUMBER@\"", number)


def delivery_in(queue: str, headers: Any, body: bytes) -> Delivery | None:
    """The delivery in a message from ``queue``; None if the message is not a delivery, or asks for more than an
    attempt."""
    # The two differ where the headers say something else; cheaper than to look at each.
    if not isinstance(headers, dict) or {**headers, **_NO_MORE} != {**_NO_MORE, **headers}:
        return None
    try:
        arguments, keywords, embed = orjson.loads(body)
        run_id, conversation_id, step, number = arguments
    except (TypeError, ValueError):
        return None
    if not isinstance(arguments, list) or keywords != {} or not isinstance(embed, dict) or any(embed.values()):
        return None
    if not all(isinstance(value, str) for value in (run_id, conversation_id, step)) or type(number) is not int:
        return None
    if not is_id("run", run_id) or not is_id("conv", conversation_id) or not _STEP.fullmatch(step):
        return None
    kind = kind_of(of) if (of := queue_in_broker(queue)) is not None else None
    if not 0 <= number < _HIGHEST or kind is None or headers.get("task") != kind.task:
        return None
    if not kind.asks_model and call_of(step) is None:
        return None
    title = headers.get(_TITLE)
    if not isinstance(title, str) or not _NAMES.fullmatch(title):
        title = ""
    return Delivery(queue, run_id, conversation_id, step, number, title)
