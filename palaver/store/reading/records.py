"""The records of runs and conversations: the fields that Redis has, and how to read them back."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import orjson
from pydantic_core import from_json

from palaver.errors import UNREADABLE, CorruptRecord
from palaver.schemas.actions import PendingAction
from palaver.schemas.conversation import Conversation, Outcome
from palaver.schemas.model_options import ModelOptions
from palaver.schemas.models import AgentSpec, Cancellation, Run, RunTimes, Usage, Waiting
from palaver.store.redis.connection import Fields
from palaver.store.scripting.contracts.wire import read_agent
from palaver.telemetry.traces import Trace
from palaver.vocabulary.ids import is_id
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from palaver.vocabulary.step_kinds import USUAL_PRIORITY

NANODOLLARS: Final = 1_000_000_000
"""In a dollar. Costs are added up as whole numbers: nothing is lost between two calls, however many there are."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def millis(moment: datetime) -> int:
    """Whole milliseconds since the epoch."""
    return (moment - _EPOCH) // _MILLISECOND


def instant(text: bytes | float) -> datetime:
    """A UTC timestamp from milliseconds since the epoch."""
    return datetime.fromtimestamp(int(text) / 1000, UTC)


def moment(text: bytes | float | None) -> datetime | None:
    """A UTC timestamp from milliseconds since the epoch; None for none."""
    return None if text is None or text == b"" else instant(text)


def _text(text: bytes | None) -> str | None:
    return None if text is None else text.decode()


def _json(text: bytes | None) -> Any:
    return None if text is None else orjson.loads(text)


USAGE_FIELDS: Final = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "model_calls",
    "tool_calls", "cost", "unpriced",
)  # fmt: skip
"""The fields for usage: in a run's hash its own, in a conversation's the sums over its runs that have ended."""
RUN_FIELDS: Final = (
    "id", "conversation", "status", "stop_reason", "waiting", "actions", "pausing", "withdrawn", "submitted_by",
    "retried_from", "retried_as", "agent", "model", "seq", "attempt", "input_preview", "output", "error",
    "incomplete_details", "cancel", "created_at", "started_at", "ended_at", "deadline", "start_by", "start_after",
    "events", "budget", "priority", "metadata", "tags", *USAGE_FIELDS, "deleting", "progress", "trace", "parent",
    "children", "recalled",
)  # fmt: skip
"""The fields of a run's hash that `run` reads. The others may be long, such as how each of its actions was resolved."""
_RUN_FIELDS: Final = tuple(map(str.encode, RUN_FIELDS))
_COUNTED: Final = {name: name.encode() for name in Usage.model_fields if name != "cost_usd"}
"""Fields of the usage that are sums of what hashes have."""


def agent_json(spec: AgentSpec) -> str:
    """An agent as JSON, as it was meant when it came in: with the defaults of today. Options of the model, of client
    tools, and newer ones are left out if they were not given, so that they say nothing to older code."""
    return spec.model_dump_json(exclude=_unsaid(spec))


def _unsaid(spec: AgentSpec) -> dict[str, Any]:
    """Return the fields that the JSON of an agent leaves out."""
    unsaid: dict[str, Any] = {name: True for name in ModelOptions.model_fields if getattr(spec, name) is None}
    unsaid["client_tools"] = {
        place: {"acknowledgement"} for place, tool in enumerate(spec.client_tools) if tool.acknowledgement is None
    }
    unsaid["version"] = spec.version is None
    if not spec.approvals.second_person:
        unsaid["approvals"] = {"second_person"}
    unsaid["condense_at_messages"] = spec.condense_at_messages is None
    unsaid["max_tool_result"] = spec.max_tool_result is None
    # The key of an endpoint is stored apart, sealed.
    unsaid["endpoint"] = True if spec.endpoint is None else {"api_key"}
    unsaid["description"] = spec.description is None
    if not spec.mcp_servers:
        unsaid["mcp_servers"] = True
    below = {name: {"agent": _unsaid(subagent.agent)} for name, subagent in spec.subagents.items()}
    unsaid["subagents"] = below or True
    return unsaid


def names(agent: AgentSpec) -> str:
    """Return the names by which scripts describe a delivery: the agent, or ``-``, and its models, with blanks between
    them."""
    return " ".join((agent.name or "-", *agent.models))


def names_json(names: Collection[str] | None) -> str | None:
    """Return names of keys as JSON, '' for a caller without one; None for None."""
    return None if names is None else orjson.dumps(sorted(names)).decode()


def run_fields(values: Sequence[bytes | None]) -> Fields | None:
    """A run's hash from the values of ``RUN_FIELDS``; None if there is no such run, or not for much longer."""
    fields = _fields_of(_RUN_FIELDS, values)
    return fields if b"id" in fields and b"deleting" not in fields else None


def run(fields: Fields) -> Run:
    """A run from its hash. Raises CorruptRecord if it is not as it was written."""
    try:
        return _run(fields)
    except UNREADABLE as error:
        raise CorruptRecord(f"the run {_name(fields)}") from error


def _run(fields: Fields) -> Run:
    run_id, conversation_id = _id("run", fields[b"id"]), _id("conv", fields[b"conversation"])
    ended, waiting = fields.get(b"ended_at"), _json(fields.get(b"waiting"))
    if waiting is not None:
        waiting = Waiting.model_validate({**waiting, "until": moment(waiting.get("until"))})
    stop = fields.get(b"stop_reason")
    spec = read_agent(fields[b"agent"])
    return Run(
        id=run_id,
        conversation_id=conversation_id,
        status=RunStatus(fields[b"status"].decode()),
        stop_reason=None if stop is None else StopReason(stop.decode()),
        waiting=waiting,
        pending_actions=tuple(action(pending) for pending in _json(fields.get(b"actions")) or ()),
        pausing=b"pausing" in fields,
        withdrawn=b"withdrawn" in fields,
        submitted_by=_text(fields.get(b"submitted_by")),
        retried_from=_text(fields.get(b"retried_from")),
        retried_as=_text(fields.get(b"retried_as")),
        parent=_json(fields.get(b"parent")),
        children=tuple(_json(fields.get(b"children")) or ()),
        agent=spec,
        model=spec.models[int(fields.get(b"model", 0))],
        step=int(fields[b"seq"]),
        attempt=int(fields.get(b"attempt", 0)),
        input_preview=_text(fields.get(b"input_preview")) or None,
        output=_text(fields.get(b"output")),
        structured_output=_structured(fields, spec),
        error=_json(fields.get(b"error")),
        incomplete_details=_json(fields.get(b"incomplete_details")),
        cancel=_cancel(fields.get(b"cancel"), ended),
        usage=_usage(fields),
        times=RunTimes(
            created_at=instant(fields[b"created_at"]),
            started_at=moment(fields.get(b"started_at")),
            ended_at=moment(ended),
            deadline=instant(fields[b"deadline"]),
            start_by=moment(fields.get(b"start_by")),
            start_after=moment(fields.get(b"start_after")),
        ),
        last_event_id=int(fields.get(b"events", 0)),
        trace_id=Trace.from_stored(fields[b"trace"].decode()).trace_id if b"trace" in fields else None,
        budget=_json(fields.get(b"budget")),
        metadata=orjson.loads(fields[b"metadata"]),
        priority=int(fields.get(b"priority") or USUAL_PRIORITY),
        tags=tuple(orjson.loads(fields[b"tags"])),
        archived=b"recalled" in fields,
    )


def _structured(fields: Fields, spec: AgentSpec) -> Any:
    if spec.response_format is None or spec.response_format.type == "text":
        return None
    if fields[b"status"] != RunStatus.COMPLETED.value.encode():
        return None
    try:
        return from_json(fields.get(b"output", b"null").strip())
    except ValueError:
        # It ended on a worker of an older version, which checked nothing.
        return None


def _usage(*parts: Fields) -> Usage:
    """Return the sum of the counts in these hashes."""
    counted = {name: _sum(field, parts) for name, field in _COUNTED.items()}
    cost = None if any(b"unpriced" in fields for fields in parts) else _sum(b"cost", parts) / NANODOLLARS
    return Usage(**counted, cost_usd=cost)


def _sum(field: bytes, parts: Sequence[Fields]) -> int:
    return sum([int(fields[field]) for fields in parts if field in fields])


def action(fields: dict[str, Any]) -> PendingAction:
    """A pending action from its JSON."""
    values = {name: fields[name] for name in PendingAction.model_fields if name in fields}
    return PendingAction(**{**values, "expires_at": instant(fields["expires_at"])})


def _cancel(text: bytes | None, ended: bytes | None) -> Cancellation | None:
    if text is None:
        return None
    cancel = orjson.loads(text)
    at = cancel["requested_at"]
    return Cancellation(
        requested_at=instant(at),
        by=cancel["by"],
        mode=cancel["mode"],
        reason=cancel["reason"],
        acked_ms=int(cancel["acked_ms"]),
        stopped_ms=None if ended is None else max(0, int(ended) - int(at)),
    )


CONVERSATION_FIELDS: Final = (
    "id", "title", "agent", "metadata", "tags", "created_at", "updated_at", "revision", "entries", "active", "queued",
    "last_outcome", "deleting", "forked_from", "forked_through", "recalled", *USAGE_FIELDS,
)  # fmt: skip
"""The fields of a conversation's hash that `conversation` reads. The others may be long."""
ACTIVE_RUN_FIELDS: Final = ("status", *USAGE_FIELDS)
"""The fields of its active run's hash that it reads."""
_CONVERSATION_FIELDS: Final = tuple(map(str.encode, CONVERSATION_FIELDS))
_ACTIVE_RUN_FIELDS: Final = tuple(map(str.encode, ACTIVE_RUN_FIELDS))


def conversation_fields(values: Sequence[bytes | None]) -> Fields | None:
    """A conversation's hash from the values of ``CONVERSATION_FIELDS``; None if there is none, or not for much
    longer."""
    fields = _fields_of(_CONVERSATION_FIELDS, values)
    return fields if b"id" in fields and b"deleting" not in fields else None


def active_run_fields(values: Sequence[bytes | None]) -> Fields:
    """A run's hash from the values of ``ACTIVE_RUN_FIELDS``."""
    return _fields_of(_ACTIVE_RUN_FIELDS, values)


def _fields_of(names: Sequence[bytes], values: Sequence[bytes | None]) -> Fields:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def conversation(fields: Fields, active_run: Fields) -> Conversation:
    """A conversation from its hash, and the status and the usage in that of its active run, empty if there is none.

    Raises CorruptRecord if they are not as they were written.
    """
    try:
        return _conversation(fields, active_run)
    except UNREADABLE as error:
        raise CorruptRecord(f"the conversation {_name(fields)}") from error


def _id(kind: Literal["run", "conv"], text: bytes) -> str:
    """The id that a field has. Raises ValueError if it is none."""
    if not is_id(kind, decoded := text.decode()):
        raise ValueError(f"no id of a {kind}")
    return decoded


def _name(fields: Fields) -> str:
    """Return the id, as far as it can be known."""
    return fields.get(b"id", b"?")[:40].decode(errors="replace")


def _conversation(fields: Fields, active_run: Fields) -> Conversation:
    spec, outcome, active = fields.get(b"agent"), fields.get(b"last_outcome"), fields.get(b"active")
    last = None if outcome is None else Outcome.model_validate_json(outcome)
    status = RunStatus(active_run[b"status"].decode()) if b"status" in active_run else None
    return Conversation(
        id=_id("conv", fields[b"id"]),
        title=_text(fields.get(b"title")),
        status=status or (last.status if last else "idle"),
        agent=None if spec is None else read_agent(spec),
        metadata=orjson.loads(fields.get(b"metadata", b"{}")),
        tags=tuple(orjson.loads(fields.get(b"tags", b"[]"))),
        created_at=instant(fields[b"created_at"]),
        updated_at=instant(fields.get(b"updated_at", fields[b"created_at"])),
        revision=int(fields.get(b"revision", 0)),
        entries=int(fields.get(b"entries", 0)),
        active_run=None if active is None else _id("run", active),
        queued_runs=tuple(fields.get(b"queued", b"").decode().split()),
        last_outcome=last,
        usage=_usage(fields, active_run),
        forked_from=_text(fields.get(b"forked_from")),
        forked_through=int(fields[b"forked_through"]) if b"forked_through" in fields else None,
        archived=b"recalled" in fields and active is None and not fields.get(b"queued"),
    )


def cursor(place: tuple[int, str]) -> str:
    """An opaque place in a list: time and id of the last one shown."""
    return base64.urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")


def parse_cursor(text: str, kind: Literal["run", "conv"] = "run") -> tuple[int, str]:
    """The place that ``cursor`` wrote, in a list of these.

    Raises:
        ValueError: when it did not write this.
    """
    try:
        at, entry_id = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError) as error:
        raise ValueError("the cursor is not one that a list gave") from error
    if not isinstance(at, int) or not isinstance(entry_id, str) or not is_id(kind, entry_id):
        raise ValueError("the cursor is not one that a list gave")
    return at, entry_id
