"""Rows of the archive's tables, made of records and read back as such.

A row has its record exactly, as text, and beside it the columns that people query. These may lack what a record says
otherwise than usual, and never keep a record from being written. JSON that a database cannot read stands in a view as
far as it can: NUL and half a character, for which neither database has a place, become U+FFFD there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Final

import orjson

from palaver.errors import UNREADABLE
from palaver.store.scripting.contracts.wire import read_agent
from palaver.vocabulary.ids import tenant_of

from .records import ArchivedEntry, ArchivedRun

DEFAULT_TENANT: Final = "default"
"""The tenant column of the default tenant, whose tag is empty: no tag has seven letters."""
Row = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MOST: Final = 2**63 - 1
_UNKNOWN: Final = "\ufffd"
_NO_CHARACTER: Final = re.compile("[\0\ud800-\udfff]")
_DEEP: Final = 200
"""Levels of JSON that are kept: SQLite reads 1,000, and Python, with the calls that it takes here, half of that."""
_SUMS: Final = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "model_calls",
    "tool_calls",
)  # fmt: skip


def tenant_column(tag: str) -> str:
    """Return what the column has for the tenant of this tag."""
    return tag or DEFAULT_TENANT


def written(fields: Mapping[str, str]) -> str:
    """Return fields as the text that `fields_of` reads."""
    try:
        return orjson.dumps(dict(fields)).decode()
    except TypeError:
        # Half a character: Python's own writes it as an escape.
        return json.dumps(dict(fields))


def fields_of(text: str) -> dict[str, str]:
    """Return the fields that `written` wrote."""
    try:
        found: dict[str, str] = orjson.loads(text)
    except ValueError:
        found = json.loads(text)
    return found


def moment_of(at: int) -> datetime:
    """Return the time of so many milliseconds. Raises ValueError where there is none."""
    try:
        return _EPOCH + at * _MILLISECOND
    except OverflowError:
        raise ValueError(f"{at} is no time") from None


def place_of(moment: datetime) -> int:
    """Return the milliseconds of a time."""
    return (moment - _EPOCH) // _MILLISECOND


def conversation_row(conversation_id: str, fields: Mapping[str, str]) -> Row:
    """Return the row of a conversation."""
    outcome = _object(fields.get("last_outcome"))
    return {
        "id": conversation_id,
        "tenant": tenant_column(tenant_of(conversation_id)),
        "title": plain(fields.get("title")),
        "folded": plain(fields.get("folded")),
        **_agent(fields.get("agent")),
        "created_at": _moment(fields.get("created_at")),
        "updated_at": _moment(fields.get("updated_at", fields.get("created_at"))),
        "entries": _number(fields.get("entries", "0")),
        "last_run_id": _word(outcome.get("run_id")),
        "last_status": _word(outcome.get("status")),
        "last_stop_reason": _word(outcome.get("stop_reason")),
        "forked_from": plain(fields.get("forked_from")),
        **_usage(fields),
        "metadata": _object(fields.get("metadata")),
        "tags": _list(fields.get("tags")),
        "record": written(fields),
    }


def run_row(conversation_id: str, run: ArchivedRun) -> Row:
    """Return the row of a run."""
    fields = run.fields
    error = _object(fields.get("error"))
    return {
        "id": run.id,
        "conversation_id": conversation_id,
        "tenant": tenant_column(tenant_of(run.id)),
        "status": plain(fields.get("status")),
        "stop_reason": plain(fields.get("stop_reason")),
        **_agent(fields.get("agent")),
        "model": _model(fields),
        "submitted_by": plain(fields.get("submitted_by")),
        "input_preview": plain(fields.get("input_preview")),
        "error_class": _word(error.get("class")),
        "error_code": _word(error.get("code")),
        "error_message": _word(error.get("message")),
        "created_at": _moment(fields.get("created_at")),
        "started_at": _moment(fields.get("started_at")),
        "ended_at": _moment(fields.get("ended_at")),
        "parent_run_id": _word(_object(fields.get("parent")).get("run_id")),
        "retried_from": plain(fields.get("retried_from")),
        **_usage(fields),
        "metadata": _object(fields.get("metadata")),
        "tags": _list(fields.get("tags")),
        "record": written(fields),
    }


def run_of(row: Any) -> ArchivedRun:
    """Return the run of a row with ``id`` and ``record``."""
    return ArchivedRun(row.id, fields_of(row.record))


def entry_row(conversation_id: str, entry: ArchivedEntry) -> Row:
    """Return the row of an entry."""
    fields = entry.fields
    data = fields.get("data", "")
    row: Row = {
        "conversation_id": conversation_id,
        "position": entry.position,
        "tenant": tenant_column(tenant_of(conversation_id)),
        "type": plain(fields.get("type", "")),
        "at": _moment(fields.get("at")),
        "run_id": plain(fields.get("run")) or None,
        "seq": _number(fields.get("seq")),
        "data": plain(data),
        "opaque": plain(fields.get("opaque")),
        "readable": _readable(data),
        "bytes": sum(map(_length, fields.values())),
        "exact": None,
    }
    if _canonical(row) != [*fields.items()]:
        row["exact"] = json.dumps([*fields.items()])
    return row


def entry_of(row: Any) -> ArchivedEntry:
    """Return the entry of a row with the columns that `entry_row` has."""
    columns = row._mapping
    pairs = _canonical(columns) if columns["exact"] is None else json.loads(columns["exact"])
    return ArchivedEntry(columns["position"], dict(pairs))


def act_row(tag: str, act_id: str, text: str) -> Row:
    """Return the row of an act, which is JSON."""
    act, at = _object(text), _moment(act_id.partition("-")[0])
    words = {name: _word(act.get(name)) for name in ("operation", "key", "key_id", "client", "request")}
    facts, status, operator = act.get("facts", {}), act.get("status"), act.get("operator", False)
    own = {"tenant": tenant_column(tag), "id": act_id, "at": at, "operator": operator, "status": status, "facts": facts}
    return {**own, **words}


def _canonical(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the fields of the entry that a row without ``exact`` stands for: those that `_emit.lua` writes."""
    at = None if row["at"] is None else place_of(row["at"])
    pairs = [("type", row["type"]), ("at", str(at)), ("run", row["run_id"] or ""), ("seq", str(row["seq"]))]
    pairs.append(("data", row["data"]))
    return pairs if row["opaque"] is None else [*pairs, ("opaque", row["opaque"])]


def _moment(text: str | None) -> datetime | None:
    """Return the time of so many milliseconds since the epoch; None where the text says none."""
    number = _number(text)
    try:
        return None if number is None else moment_of(number)
    except ValueError:
        return None


def _length(text: str) -> int:
    """Return the bytes of a text."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _number(text: str | None) -> int | None:
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if abs(number) <= _MOST else None


def plain(text: str | None) -> str | None:
    """Return a text with nothing that a database has no place for."""
    if text is None or ("\0" not in text and text.isascii()):
        return text
    return _NO_CHARACTER.sub(_UNKNOWN, text)


def _word(value: Any) -> str | None:
    return plain(value) if isinstance(value, str) else None


def _usage(fields: Mapping[str, str]) -> Row:
    cost = None if "unpriced" in fields else _number(fields.get("cost", "0"))
    return {**{name: _number(fields.get(name, "0")) for name in _SUMS}, "cost_usd": cost}


def _agent(text: str | None) -> Row:
    """Return the name of an agent, with its version on the server."""
    agent = _object(text)
    version = agent.get("version")
    return {"agent": _word(agent.get("name")), "agent_version": version if isinstance(version, int) else None}


def _model(fields: Mapping[str, str]) -> str | None:
    """Return the model that was asked last: the agent's own, or one of its fallbacks."""
    try:
        return read_agent(fields["agent"].encode()).models[int(fields.get("model", "0"))]
    except UNREADABLE:
        return None


def _object(text: str | None) -> Row:
    value = _json(text)
    return value if isinstance(value, dict) else {}


def _list(text: str | None) -> list[Any]:
    value = _json(text)
    return value if isinstance(value, list) else []


def _json(text: str | None) -> Any:
    """Return JSON as both databases have it; None for what is none."""
    try:
        return orjson.loads(text or "null") if text is None or "\\u" not in text else _mended(_parsed(text), _DEEP)
    except (ValueError, RecursionError):
        return None


def _readable(data: str) -> str | None:
    """Return the JSON of an entry for those who query it, if ``data`` is nothing that both databases read."""
    if _is_read_by_all(data):
        return None
    try:
        found = _parsed(data)
        mended = _mended(found, _DEEP)
        return None if mended == found else json.dumps(mended, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "null"


def _is_read_by_all(data: str) -> bool:
    """Tell whether JSON is read by both databases, as nearly all is. False if it takes a closer look."""
    if "\\u" in data or data.count("{") + data.count("[") > _DEEP:
        return False
    try:
        orjson.loads(data)
    except ValueError:
        return False
    return True


def _parsed(text: str) -> Any:
    """Return JSON with its numbers as they are, and halves of characters. Raises ValueError and RecursionError."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _mended(value: Any, levels: int) -> Any:
    """Return a JSON value without characters that are none, and without what is deeper than so many levels."""
    match value:
        case str():
            return plain(value)
        case dict():
            return {plain(key): _mended(each, levels - 1) for key, each in value.items()} if levels else None
        case list():
            return [_mended(each, levels - 1) for each in value] if levels else None
        case float() if not isfinite(value):
            return None
        case _:
            return value
