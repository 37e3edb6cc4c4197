"""Reports about a task that a tool step has published, in a Redis: usually the broker of the task's application.

    palaver:task:<task id>:sent  string  it is about to be published, or was: it is not published again    TTL: a week
    palaver:task:<task id>       list    what was reported of it, in order                                 TTL: a day

The step makes both; workers of the application add to the list, and only while the first is there, so that reports
about tasks of others go nowhere. This module needs no Celery.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

State = Literal["published", "started", "retry", "success", "failure", "revoked"]
ENDS: Final = frozenset({"success", "failure", "revoked"})
"""States of a task that is over."""
OF_US: Final = "palaver:"
"""The beginning of the id of each task that is a call of a tool; the idempotency key of the call follows."""
BRIEFLY: Final = {
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
    "connect_timeout": 5,
    "read_timeout": 10,
    "write_timeout": 10,
    "confirm_publish": True,
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
}
"""Options of a connection of kombu's to a Redis or a RabbitMQ, so that one which is away is soon known to be. Times are
in seconds; each kind of broker knows some of them."""
_WEEK, _DAY = 7 * 86_400, 86_400
_MOST: Final = 512 * 1024
"""Characters of a result, as JSON."""
_MOST_TEXT: Final = 2_000
_LOOKED_AT: Final = 8
"""Reports that are read, the newest. What ended a task is the last of them, or a task was run again after it."""

_MARK: Final = """
if not redis.call('SET', KEYS[1], '', 'NX', 'EX', ARGV[1]) then return 0 end
redis.call('DEL', KEYS[2])
return 1
"""
_ADD: Final = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 1
"""
_READ: Final = "return redis.call('LRANGE', KEYS[1], ARGV[1], -1)"


class Reports:
    """Reports in the Redis of a client of redis-py. Each call is one round trip, and raises what the client does."""

    def __init__(self, client: Any, prefix: str = "") -> None:
        """``prefix`` is that of all keys that the application has there."""
        self._client = client
        self._prefix = prefix

    def mark(self, task_id: str) -> bool:
        """Mark the task as about to be published. False if it was before."""
        return bool(self._client.eval(_MARK, 2, *self._keys(task_id), _WEEK))

    def add(self, task_id: str, state: State, **facts: Any) -> None:
        """Report what has become of the task."""
        text = json.dumps({"state": state, **facts}, default=str)
        self._client.eval(_ADD, 2, *self._keys(task_id), text, _DAY)

    def read(self, task_id: str) -> list[Mapping[str, Any]]:
        """The newest reports, in order."""
        found = self._client.eval(_READ, 1, self._keys(task_id)[1], -_LOOKED_AT)
        return [report for text in found if (report := _report(text)) is not None]

    def _keys(self, task_id: str) -> tuple[str, str]:
        key = f"{self._prefix}palaver:task:{task_id}"
        return f"{key}:sent", key


def _report(text: bytes | str) -> Mapping[str, Any] | None:
    try:
        report = json.loads(text)
    except ValueError:
        return None
    known = isinstance(report, dict) and report.get("state") in get_args(State)
    return report if known else None


def result_facts(result: object) -> dict[str, Any]:
    """The facts of a report about a success: the result, or of one that is too large its beginning as a text."""
    text = json.dumps(result, default=str)
    if len(text) <= _MOST:
        return {"result": json.loads(text)}
    return {"result": f"{text[:_MOST]}\n[cut: the result has {len(text):,} characters as JSON]"}


def error_facts(error: object) -> dict[str, Any]:
    """The facts of a report about an error."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return {"error": type(error).__name__[:100], "message": text[:_MOST_TEXT]}


def reports_over(connection: Any) -> Reports | None:
    """The reports in the Redis of a connection of kombu's; None if it leads to another broker."""
    if connection.transport.driver_type != "redis":
        return None
    prefix = (connection.transport_options or {}).get("global_keyprefix", "")
    return Reports(connection.default_channel.client, prefix)
