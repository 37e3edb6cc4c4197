"""The worst requests that each route admits: a case for every one, which can be made larger."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import orjson

from api.app import create_app
from api.http.routes import HandlerRoute
from features.batches.contract import EndedCell
from features.batches.progress import BatchProgress
from features.schedules import schedule_keys
from features.statistics import statistics_keys
from features.statistics.tallies import SpanTally
from features.statistics.windows import WINDOWS
from features.webhooks import webhook_keys
from features.webhooks.delivery_records import DeliveryRecord, RecordedAttempt
from features.webhooks.webhooks import Webhooks
from palaver.errors import ErrorClass, Failure
from palaver.schemas.conversation import NewConversation
from palaver.schemas.models import AgentSpec, Message, Submission
from palaver.schemas.tenants import CapsChange
from palaver.steps.verdicts import Continue, GiveUp, Postpone
from palaver.store.access.api_keys import KeyGrant
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.reading.usage_ledger import today
from palaver.store.redis import access_keys, keys
from palaver.tools import ToolDeclaration, ToolSet
from palaver.vocabulary.ledger import COLUMNS
from palaver.vocabulary.lifecycle import StopReason, WaitReason
from palaver.vocabulary.limits import MIB, limit_of
from palaver.vocabulary.scopes import SCOPES
from tests.unit.api_world import World, call

ROUTES: Final = frozenset(
    f"{route.method} {route.path_format}" for route in create_app().routes if isinstance(route, HandlerRoute)
)
AGENT: Final[dict[str, Any]] = {"model": "fake/echo"}
CALLS: Final = 128
"""Tool calls of one answer of a model."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request."""

    path: str
    body: Any = None
    accept: str = "*/*"


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of request to a route, which can be made larger."""

    route: str
    """Method and path."""
    what: str
    """That there are ``n`` of."""
    largest: int
    """The ``n`` that is admitted at most, or that the table is measured at."""
    prepare: Callable[[World, int], Awaitable[Ask]]
    counted_at: int = 0
    """The largest ``n`` that is counted, if it is neither ``largest`` nor half of the messages that are admitted."""

    @property
    def most_counted(self) -> int:
        """The largest ``n`` that is counted. Of messages, which take longest to prepare, half of what is admitted: a
        square shows there as well."""
        return self.counted_at or self.largest // (2 if self.largest == limit_of("input_messages") else 1)


async def submitted(api: World, messages: int = 1, agent: dict[str, Any] | None = None) -> dict[str, Any]:
    """A run whose conversation has so many messages."""
    said = [{"role": "user", "content": f"message {n}"} for n in range(messages)]
    body = {"agent": agent or AGENT, "input": said, "tags": ["a", "b"], "metadata": {"k": "v"}}
    made = await api.store.runs.submit(Submission.model_validate_json(json.dumps(body)))
    run = await api.store.runs.get(made.run_id)
    return run.model_dump(mode="json")


async def asked(api: World, calls: int) -> dict[str, Any]:
    """A run that waits for so many outputs and as many decisions."""
    run = await submitted(api)
    kinds = ("client_tool", "approval")
    await api.store.steps.settle(
        await _claimed(api, run),
        _continue(*(call(f"call_{n}", kinds[n % 2]) for n in range(calls))),  # type: ignore[arg-type]
    )
    return (await api.store.runs.get(run["id"])).model_dump(mode="json")


async def _claimed(api: World, run: dict[str, Any]) -> Any:
    return await api.store.steps.claim(
        run["id"], run["conversation_id"], "1", queues=("model",), worker="w-1", nonce="n", known=0
    )


def _continue(*calls: Any) -> Any:
    return Continue(Message(role="assistant", tool_calls=tuple(each.call for each in calls)), calls=calls)


def _body(route: str, make: Callable[[int], Any]) -> Callable[[World, int], Awaitable[Ask]]:
    async def prepare(api: World, n: int) -> Ask:
        return Ask(route, make(n))

    return prepare


def _runs(made: Callable[[World, dict[str, Any]], Ask], *, body: Callable[[int], Any] | None = None) -> Any:
    """A request about one run of a conversation with ``n`` messages, or with a body of size ``n``."""

    async def prepare(api: World, n: int) -> Ask:
        run = await submitted(api, 1 if body else n)
        wanted = made(api, run)
        return Ask(wanted.path, body(n) if body else wanted.body, wanted.accept)

    return prepare


def fields(n: int) -> dict[str, Any]:
    return {f"field_{k}": k for k in range(n)}


def _schema(n: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{k}": {"type": "string"} for k in range(n)}}


def _glob(n: int) -> str:
    return f"[c{chr(ord('A') + n % 26)}{chr(ord('0') + n // 26)}]*a*l*c*u*l*a*t*o*r*"


async def _many_runs(api: World, n: int) -> None:
    for _ in range(n):
        await submitted(api)


async def _list(api: World, n: int) -> Ask:
    await _many_runs(api, n)
    return Ask("/v1/runs?limit=200&tag=no-run-has-this")


async def _counted(api: World, n: int) -> Ask:
    await _many_runs(api, n)
    return Ask("/v1/runs/count")


async def _export(api: World, n: int) -> Ask:
    await _many_runs(api, n)
    return Ask("/v1/tenants/default/export", accept="text/x-ndjson")


async def _erase(api: World, n: int) -> Ask:
    for number in range(n):
        await api.store.tenants.create(f"tenant-{number}")
    return Ask("/v1/tenants/tenant-0/erase", {})


async def _list_long(api: World, n: int) -> Ask:
    for _ in range(n):
        await submitted(api, agent={**AGENT, "instructions": "é" * limit_of("instructions")})
    return Ask("/v1/runs?limit=200")


async def _bulk(api: World, n: int) -> Ask:
    await _many_runs(api, n)
    return Ask("/v1/runs/actions", {"action": "cancel", "all": True})


async def _as_parent(api: World, run_ids: Sequence[str], **row: object) -> str:
    """Write runs down as the children of one; return its id."""
    parent = (await submitted(api))["id"]
    for number, run_id in enumerate(run_ids):
        of = {"run_id": parent, "step": f"1/{number}", "depth": 1}
        await api.redis.hset(keys.run(run_id), "parent", orjson.dumps(of))
    rows = [{"run_id": each, "step": f"1/{number}", "agent": "a", **row} for number, each in enumerate(run_ids)]
    await api.redis.hset(keys.run(parent), "children", orjson.dumps(rows))
    return str(parent)


async def _list_children(api: World, n: int) -> Ask:
    parent = await _as_parent(api, [(await submitted(api))["id"] for _ in range(n)])
    return Ask(f"/v1/runs?limit=200&parent={parent}")


async def _pending_below(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{await _as_parent(api, [(await asked(api, n))['id']], pending_actions=n)}")


async def _answer_below(api: World, n: int) -> Ask:
    """Nobody has the action: all of them are looked through."""
    parent = await _as_parent(api, [(await submitted(api))["id"] for _ in range(n)])
    item = {"type": "approval", "action_id": "act_none", "decision": "approve"}
    return Ask(f"/v1/runs/{parent}/input", {"items": [item]})


async def _pending(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{(await asked(api, n))['id']}")


async def _cancel_calls(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{(await asked(api, n))['id']}/cancel", {"reason": "x" * limit_of("reason")})


async def _answers(api: World, n: int) -> Ask:
    run = await asked(api, n)
    items = [
        {"type": "tool_output", "call_id": each["call_id"], "output": "x" * 1000}
        if each["type"] == "client_tool"
        else {"type": "approval", "action_id": each["id"], "decision": "edit", "arguments": {"expression": "1"}}
        for each in run["pending_actions"]
    ]
    return Ask(f"/v1/runs/{run['id']}/input", {"items": items})


async def failed(api: World, n: int) -> dict[str, Any]:
    """A run of so many messages that has failed."""
    run = await submitted(api, n)
    verdict = GiveUp(Failure.of(ErrorClass.AUTHENTICATION), StopReason.ERROR)
    await api.store.steps.settle(await _claimed(api, run), verdict)
    return run


async def _retry(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{(await failed(api, n))['id']}/retry", {})


async def _fork(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{(await failed(api, n))['id']}/retry", {"from_step": 1, "input": "and"})


async def _delete(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{(await failed(api, n))['id']}")


async def _delete_conversation(api: World, n: int) -> Ask:
    return Ask(f"/v1/conversations/{(await failed(api, n))['conversation_id']}")


def _workers(path: str) -> Callable[[World, int], Awaitable[Ask]]:
    async def prepare(api: World, n: int) -> Ask:
        for k in range(n):
            await api.store.fleet.report(WorkerReport(f"w-{k}", ("model",), in_flight=1, capacity=50, draining=False))
        return Ask(path)

    return prepare


async def _services(api: World, n: int) -> Ask:
    tools = [ToolDeclaration(name=f"t{k}", description="", timeout=1, limit_key=f"s{k}") for k in range(n)]
    await api.store.tools.publish(ToolSet.of(tools), ("tools",))
    return Ask("/v1/queues")


async def _agents(api: World, n: int) -> Ask:
    for k in range(n):
        await api.store.agents.keep("", f"agent-{k}", AgentSpec(model="fake/echo"))
    return Ask("/v1/agents?limit=200")


def _schedules(path: str) -> Callable[[World, int], Awaitable[Ask]]:
    async def prepare(api: World, n: int) -> Ask:
        for k in range(n):
            body = {"cron": "30 2 * * *", "run": {"agent": AGENT, "input": "hello"}}
            assert (await api.client.put(f"/v1/schedules/schedule-{k}", json=body)).status_code == 201
        return Ask(path)

    return prepare


def _ticks(verb: str) -> Callable[[World, int], Awaitable[Ask]]:
    async def prepare(api: World, n: int) -> Ask:
        await _schedules("")(api, 1)
        entry = {
            "tick": "2026-01-01T00:00:00Z",
            "at": "2026-01-01T00:00:00Z",
            "outcome": "refused",
            "message": "x" * 500,
        }
        for _ in range(n):
            await api.redis.xadd(schedule_keys.schedule_ticks("", "schedule-0"), {"tick": json.dumps(entry)})
        return Ask(f"/v1/schedules/schedule-0{verb}")

    return prepare


async def _batches(api: World, n: int) -> Ask:
    for _ in range(n):
        body = {"agents": [AGENT], "items": [{"input": "hello"}]}
        assert (await api.client.post("/v1/batches", json=body)).status_code == 201
    return Ask("/v1/batches?limit=200")


def _batch(path: str, *, more: bool = False) -> Callable[[World, int], Awaitable[Ask]]:
    """A batch that goes on and has ``n`` items, all of which have failed; or so many that are to come."""

    async def prepare(api: World, n: int) -> Ask:
        items: list[dict[str, Any]] = [{"input": "hello"}] * n
        body = {"agents": [AGENT], "items": [] if more else items, "complete": not more}
        batch_id = (await api.client.post("/v1/batches", json=body)).json()["id"]
        progress = api.store.part(BatchProgress)
        claimed = await progress.claim("", batch_id)
        assert claimed is not None
        begun, claimed.next = await progress.to_begin(claimed, n)
        facts = {"item": "x", "agent": "x", "agent_number": 0, "repeat": 1, "attempt": 1, "status": "failed"}
        ended = [
            EndedCell(each.cell, json.dumps({**facts, "cell": each.cell}), 0, "failed", True, 0, 0, 0, 0, None)
            for each in begun
        ]
        await progress.advance(claimed, ended=ended, wait=None if path else 0.0)
        return Ask(f"/v1/batches/{batch_id}{path}", {"offset": 0, "items": items} if more else None)

    return prepare


async def _versions(api: World, n: int) -> Ask:
    for k in range(n):
        await api.store.agents.keep("", "support", AgentSpec(model="fake/echo", max_steps=k + 1))
    return Ask("/v1/agents/support")


async def _tools(api: World, n: int) -> Ask:
    for version in range(limit_of("tool_sets")):
        tools = (ToolDeclaration(name=f"tool-{k}", description=f"version {version}", timeout=1) for k in range(n))
        await api.store.tools.publish(ToolSet.of(tools), ("tools",))
    return Ask("/v1/tools")


async def _nothing(api: World, n: int) -> Ask:
    return Ask("/healthz")


async def _ready(api: World, n: int) -> Ask:
    for k in range(n):
        run = await api.submit()
        lease = await api.claim(run)
        await api.store.steps.settle(lease, Postpone(60.0, f"tool:t{k}", WaitReason.NO_WORKER))
    return Ask("/readyz")


def _events(accept: str) -> Any:
    async def prepare(api: World, n: int) -> Ask:
        run = await failed(api, n)
        return Ask(f"/v1/runs/{run['id']}/events?limit=1000", accept=accept)

    return prepare


def _conversations(rest: str) -> Any:
    async def prepare(api: World, n: int) -> Ask:
        for _ in range(n):
            await api.store.conversations.begin(NewConversation(title="t" * 200))
        return Ask(f"/v1/conversations{rest}")

    return prepare


def _of_conversation(rest: str, accept: str = "*/*") -> Any:
    return _runs(lambda api, run: Ask(f"/v1/conversations/{run['conversation_id']}{rest}", accept=accept))


async def _secrets(api: World, n: int) -> Ask:
    run = await submitted(api)
    secrets = {f"SECRET_{k}": "x" * 512 for k in range(n)}
    return Ask(f"/v1/conversations/{run['conversation_id']}/secrets", {"secrets": secrets})


async def _condense(api: World, n: int) -> Ask:
    run = await submitted(api, n)
    await api.store.runs.cancel(run["id"])
    return Ask(f"/v1/conversations/{run['conversation_id']}/condense")


async def _withdraw(api: World, n: int) -> Ask:
    run = await submitted(api, n)
    await api.store.runs.cancel(run["id"])
    return Ask(f"/v1/conversations/{run['conversation_id']}/withdraw", {"after": 0})


_VALUES: Final = limit_of("body_values") - 100
_SUBMIT: Final = "POST /v1/runs"


def _keys(ask: Callable[[str], Ask]) -> Callable[[World, int], Awaitable[Ask]]:
    """A request about one of so many keys."""

    async def prepare(api: World, n: int) -> Ask:
        grant = KeyGrant("key", scopes=frozenset(SCOPES), agents=frozenset(f"agent-{k}" for k in range(10)))
        made = [await api.store.api_keys.create(grant) for _ in range(n)]
        return ask(made[0].record.id)

    return prepare


def _webhooks(ask: Callable[[str], Ask]) -> Callable[[World, int], Awaitable[Ask]]:
    """A request about a webhook with so many deliveries that have ended, with all that is kept of an attempt."""

    async def prepare(api: World, n: int) -> Ask:
        webhook = (await api.store.part(Webhooks).create("", "https://example.org/hook")).webhook.id
        of, attempt = (
            webhook_keys.of_webhook(webhook),
            RecordedAttempt(1, 1, 500, None, "x" * limit_of("webhook_answer")),
        )
        for k in range(n):
            record = DeliveryRecord(f"msg_{k}", "run.failed", 1, "failed", 10, {"run_id": "x" * 40}, (attempt,) * 3)
            await api.redis.hset(of.records, record.id, record.json)
            for listed in (of.listed, of.ended):
                await api.redis.zadd(listed, {record.id: 1_700_000_000_000 + k})
        return ask(webhook)

    return prepare


async def _tenants(api: World, n: int) -> Ask:
    for k in range(n):
        await api.redis.hset(
            access_keys.TENANTS, mapping={f"t{k}": json.dumps({"tag": f"{k:06}"}), f"@{k:06}": f"t{k}"}
        )
        await api.store.caps.change(f"{k:06}", CapsChange(weight=2, usd_per_day=1))
    key = await api.store.api_keys.create(KeyGrant("root", operator=True))
    api.client.headers["authorization"] = f"Bearer {key.key}"
    return Ask("/v1/tenants")


async def _acts(api: World, n: int) -> Ask:
    for k in range(n):
        await api.store.audit.add(
            "", "cancel", key="key", facts={"run": f"run {k}", "items": ["approval approve"] * 16}
        )
    return Ask(f"/v1/audit?limit={n}")


async def _rows_of_usage(api: World, n: int) -> Ask:
    day = (today() - date(1970, 1, 1)).days
    rows: dict[Any, Any] = {f"{column} agent-{k} fake/echo key": 1 for k in range(n) for column in COLUMNS}
    await api.redis.hset(keys.usage("00", day), mapping=rows)
    return Ask("/v1/usage?group_by=agent")


async def _statistics(api: World, n: int) -> Ask:
    window, tally = WINDOWS["day"], SpanTally()
    for model in range(n):
        tally.add(f"model failed timeout {2 ** (model % 30)} {2 ** (model % 30)} fake/{model} 1 1 1 1".split(" "))
    now = window.number(int(time.time() * 1000))
    numbers = range(now - window.spans + 1, now + 1)
    spans: dict[Any, Any] = {window.place(number): tally.to_json(number) for number in numbers}
    await api.redis.hset(statistics_keys.statistics("00"), mapping=spans)
    return Ask("/v1/statistics?window=day")


_SECRETS: Final = "PATCH /v1/conversations/{conversation_id}/secrets"
_INPUT: Final = "POST /v1/runs/{run_id}/input"
_PAIRS: Final = limit_of("input_messages") // 2

CASES: Final = (
    Case(_SUBMIT, "unknown fields", _VALUES, _body("/v1/runs", fields)),
    Case(_SUBMIT, "unknown fields of a message", _VALUES,
         _body("/v1/runs", lambda n: {"agent": AGENT, "input": [{"role": "user", **fields(n)}]})),
    Case(_SUBMIT, "tool calls without anything", _VALUES,
         _body("/v1/runs", lambda n: {"agent": AGENT, "input": [{"role": "assistant", "tool_calls": [{}] * n}]})),
    Case(_SUBMIT, "entries of metadata", _VALUES // 2,
         _body("/v1/runs", lambda n: {"agent": AGENT, "input": "x", "metadata": fields(n)})),
    Case(_SUBMIT, "lists in lists", _VALUES, _body("/v1/runs", lambda n: {"agent": AGENT, "input": [[[]] * (n // 2)]})),
    Case(_SUBMIT, "objects, refused unread", MIB // 3 - 1, _body("/v1/runs", lambda n: b"[%b{}]" % (b"{}," * (n - 1)))),
    Case(_SUBMIT, "commas in a text", limit_of("input_text"),
         _body("/v1/runs", lambda n: {"agent": AGENT, "input": "," * n})),
    Case(_SUBMIT, "characters", limit_of("input_text"),
         _body("/v1/runs", lambda n: {"agent": {**AGENT, "instructions": "é" * (n // 4)}, "input": "x" * n})),
    Case(_SUBMIT, "messages", 2 * _PAIRS,
         _body("/v1/runs", lambda n: {"agent": AGENT, "input": [{"role": "user", "content": "hello"}] * n})),
    Case(_SUBMIT, "messages without a result", 2 * _PAIRS, _body("/v1/runs", lambda n: {"agent": AGENT, "input": [
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "t"}]}, {"role": "user"}] * (n // 2)})),
    Case(_SUBMIT, "tools that are none", limit_of("agent_tools"),
         _body("/v1/runs", lambda n: {"agent": {**AGENT, "tools": [f"nothing_{k}" for k in range(n)]}, "input": "x"})),
    Case(_SUBMIT, "globs", limit_of("approval_patterns"), _body("/v1/runs", lambda n: {"agent": {
        **AGENT, "tools": ["calculator"], "approvals": {"require": [_glob(k) for k in range(n)]}}, "input": "x"})),
    Case(_SUBMIT, "agents below in the request", limit_of("subagents"), _body("/v1/runs", lambda n: {
        "input": "x", "agent": {**AGENT, "tools": [f"agent_{k}" for k in range(n)],
        "subagents": {f"agent_{k}": {"agent": {**AGENT, "instructions": "x" * 2000}} for k in range(n)}}})),
    Case(_SUBMIT, "client tools", limit_of("agent_tools"), _body("/v1/runs", lambda n: {"agent": {
        **AGENT, "client_tools": [
        {"name": f"tool_{k}", "parameters": _schema(30)} for k in range(n)]}, "input": "x"})),
    Case(_SUBMIT, "fields of a schema", 900, _body("/v1/runs", lambda n: {"agent": {
        **AGENT, "client_tools": [
        {"name": "tool", "parameters": _schema(n)}]}, "input": "x"})),
    Case("GET /v1/runs", "runs that a filter looks at", 5_000, _list, counted_at=200),
    Case("GET /v1/runs/count", "runs", 5_000, _counted, counted_at=200),
    Case("GET /v1/runs", "runs with the longest instructions", 40, _list_long, counted_at=20),
    Case("GET /v1/runs", "runs that calls of one began", limit_of("children"), _list_children, counted_at=50),
    Case("GET /v1/runs/{run_id}", "pending actions", CALLS, _pending),
    Case("GET /v1/runs/{run_id}", "pending actions below", limit_of("pending_below"), _pending_below),
    Case("DELETE /v1/runs/{run_id}", "messages of the run", limit_of("input_messages"), _delete),
    Case("POST /v1/runs/actions", "runs", limit_of("bulk_runs"), _bulk, counted_at=100),
    Case("POST /v1/runs/actions", "unknown fields", _VALUES, _body("/v1/runs/actions", fields)),
    Case("POST /v1/runs/{run_id}/cancel", "open calls", CALLS, _cancel_calls),
    Case("POST /v1/runs/{run_id}/cancel", "unknown fields", _VALUES,
         _runs(lambda api, run: Ask(f"/v1/runs/{run['id']}/cancel"), body=fields)),
    Case(_INPUT, "calls that are answered", CALLS, _answers),
    Case(_INPUT, "runs below without that action", limit_of("children"), _answer_below, counted_at=50),
    Case(_INPUT, "words", limit_of("run_items"), _runs(
        lambda api, run: Ask(f"/v1/runs/{run['id']}/input"), body=lambda n: {
        "items": [{"type": "message", "content": "In metres, please."}] * n})),
    Case(_INPUT, "unknown fields", _VALUES - 200, _runs(lambda api, run: Ask(f"/v1/runs/{run['id']}/input"),
         body=lambda n: {"items": [{"type": "pause", **fields(n // 200)}] * 200})),
    Case("POST /v1/runs/{run_id}/retry", "messages of the run", limit_of("input_messages"), _retry),
    Case("POST /v1/runs/{run_id}/retry", "messages to fork", limit_of("input_messages"), _fork),
    Case("POST /v1/runs/{run_id}/retry", "unknown fields", _VALUES,
         _runs(lambda api, run: Ask(f"/v1/runs/{run['id']}/retry"), body=fields)),
    Case("GET /v1/runs/{run_id}/events", "events of a page", limit_of("input_messages"), _events("application/json")),
    Case("GET /v1/runs/{run_id}/events", "events of a stream", limit_of("input_messages"),
         _events("text/event-stream")),
    Case("POST /v1/conversations", "unknown fields", _VALUES, _body("/v1/conversations", fields)),
    Case("GET /v1/conversations", "conversations that do not fit", 400,
         _conversations("?title=no-such"), counted_at=200),
    Case("GET /v1/conversations/count", "conversations", 400, _conversations("/count?title=no-such"), counted_at=200),
    Case("PATCH /v1/conversations/{conversation_id}", "unknown fields", _VALUES,
         _runs(lambda api, run: Ask(f"/v1/conversations/{run['conversation_id']}"), body=fields)),
    Case("GET /v1/conversations/{conversation_id}", "entries", limit_of("input_messages"), _of_conversation("")),
    Case("POST /v1/conversations/{conversation_id}/messages", "messages", limit_of("input_messages"),
         _runs(lambda api, run: Ask(f"/v1/conversations/{run['conversation_id']}/messages"),
               body=lambda n: {"input": [{"role": "user", "content": "hello"}] * n})),
    Case("GET /v1/conversations/{conversation_id}/events", "entries", limit_of("input_messages"),
         _of_conversation("/events?limit=500", "application/json")),
    Case("POST /v1/conversations/{conversation_id}/ask", "unknown fields", _VALUES,
         _runs(lambda api, run: Ask(f"/v1/conversations/{run['conversation_id']}/ask"), body=fields)),
    Case("POST /v1/conversations/{conversation_id}/condense", "entries", limit_of("input_messages"), _condense),
    Case("POST /v1/conversations/{conversation_id}/withdraw", "entries", limit_of("input_messages"), _withdraw),
    Case("POST /v1/conversations/{conversation_id}/fork", "entries", limit_of("input_messages"),
         _runs(lambda api, run: Ask(f"/v1/conversations/{run['conversation_id']}/fork", {}))),
    Case("GET /v1/conversations/{conversation_id}/messages", "entries", limit_of("input_messages"),
         _of_conversation("/messages?limit=500")),
    Case(_SECRETS, "secrets", limit_of("secrets"), _secrets),
    Case("GET /v1/conversations/{conversation_id}/secrets", "entries", limit_of("input_messages"),
         _of_conversation("/secrets")),
    Case("DELETE /v1/conversations/{conversation_id}", "entries", limit_of("input_messages"), _delete_conversation),
    Case("PUT /v1/agents/{name}", "unknown fields", _VALUES, _body("/v1/agents/support", fields)),
    Case("GET /v1/agents", "agents", 200, _agents),
    Case("GET /v1/agents/{name}", "versions", limit_of("agent_versions"), _versions),
    Case("DELETE /v1/agents/{name}", "versions", limit_of("agent_versions"), _versions),
    Case("PUT /v1/schedules/{name}", "unknown fields", _VALUES, _body("/v1/schedules/nightly", fields)),
    Case("GET /v1/schedules", "schedules", 200, _schedules("/v1/schedules?limit=200"), counted_at=100),
    Case("GET /v1/schedules/{name}", "ticks", limit_of("schedule_ticks"), _ticks("")),
    Case("POST /v1/schedules/{name}/pause", "ticks", limit_of("schedule_ticks"), _ticks("/pause")),
    Case("POST /v1/schedules/{name}/resume", "ticks", limit_of("schedule_ticks"), _ticks("/resume")),
    Case("POST /v1/schedules/{name}/trigger", "ticks", limit_of("schedule_ticks"), _ticks("/trigger")),
    Case("DELETE /v1/schedules/{name}", "ticks", limit_of("schedule_ticks"), _ticks("")),
    Case("POST /v1/batches", "items", limit_of("batch_part"), _body("/v1/batches", lambda n: {
        "agents": [AGENT], "items": [{"input": "hello"}] * n})),
    Case("GET /v1/batches", "batches", 200, _batches, counted_at=100),
    Case("GET /v1/batches/{batch_id}", "items", limit_of("batch_part"), _batch("")),
    Case("POST /v1/batches/{batch_id}/items", "items", limit_of("batch_part"), _batch("/items", more=True)),
    Case("GET /v1/batches/{batch_id}/results", "results", 500, _batch("/results?limit=500")),
    Case("POST /v1/batches/{batch_id}/cancel", "items", limit_of("batch_part"), _batch("/cancel")),
    Case("POST /v1/batches/{batch_id}/retry", "results that failed", limit_of("batch_part"), _batch("/retry")),
    Case("DELETE /v1/batches/{batch_id}", "items", limit_of("batch_part"), _batch("")),
    Case("POST /v1/keys", "agents", limit_of("api_key_agents"), _body("/v1/keys", lambda n: {
        "name": "key", "scopes": ["admin"], "agents": [f"agent-{k}" for k in range(n)]})),
    Case("POST /v1/keys", "unknown fields", _VALUES, _body("/v1/keys", fields)),
    Case("GET /v1/keys", "keys", limit_of("api_keys"), _keys(lambda _: Ask("/v1/keys")), counted_at=200),
    Case("POST /v1/keys/{api_key_id}/rotate", "keys", 100, _keys(lambda key: Ask(f"/v1/keys/{key}/rotate", {}))),
    Case("DELETE /v1/keys/{api_key_id}", "keys", 100, _keys(lambda key: Ask(f"/v1/keys/{key}"))),
    Case("POST /v1/webhooks", "unknown fields", _VALUES, _body("/v1/webhooks", fields)),
    Case("GET /v1/webhooks", "deliveries", 200, _webhooks(lambda _: Ask("/v1/webhooks"))),
    Case("GET /v1/webhooks/{webhook_id}", "deliveries", 200, _webhooks(lambda hook: Ask(f"/v1/webhooks/{hook}"))),
    Case("PATCH /v1/webhooks/{webhook_id}", "deliveries", 200, _webhooks(lambda hook: Ask(
        f"/v1/webhooks/{hook}", {"description": "x" * 500}))),
    Case("POST /v1/webhooks/{webhook_id}/rotate", "deliveries", 200, _webhooks(lambda hook: Ask(
        f"/v1/webhooks/{hook}/rotate", {}))),
    Case("DELETE /v1/webhooks/{webhook_id}", "deliveries", 200, _webhooks(lambda hook: Ask(f"/v1/webhooks/{hook}"))),
    Case("GET /v1/webhooks/{webhook_id}/deliveries", "deliveries", 200, _webhooks(lambda hook: Ask(
        f"/v1/webhooks/{hook}/deliveries?limit=200"))),
    Case("POST /v1/webhooks/{webhook_id}/replay", "deliveries", 200, _webhooks(lambda hook: Ask(
        f"/v1/webhooks/{hook}/replay", {"since": "2001-01-01T00:00:00Z"}))),
    Case("GET /v1/tenants", "tenants", 400, _tenants, counted_at=200),
    Case("GET /v1/tenants/{tenant}", "nothing", 4, _body("/v1/tenants/default", lambda n: None)),
    Case("PATCH /v1/tenants/{tenant}", "unknown fields", _VALUES, _body("/v1/tenants/default", fields)),
    Case("GET /v1/audit", "acts", limit_of("audit_page"), _acts),
    Case("GET /v1/tenants/{tenant}/export", "runs", 1_000, _export, counted_at=100),
    Case("POST /v1/tenants/{tenant}/erase", "tenants that are there", 1_000, _erase, counted_at=100),
    Case("POST /v1/tokens", "scopes", limit_of("api_key_scopes"), _runs(lambda api, run: Ask(
        "/v1/tokens", {"run": run["id"], "scopes": ["runs:read"] * 16}))),
    Case("GET /v1/caller", "nothing", 4, _body("/v1/caller", lambda n: None)),
    Case("GET /v1/queues", "workers", 1_000, _workers("/v1/queues"), counted_at=200),
    Case("GET /v1/queues", "services of tools", limit_of("services"), _services, counted_at=50),
    Case("GET /metrics", "workers", 1_000, _workers("/metrics"), counted_at=200),
    Case("GET /v1/usage", "rows of a day", limit_of("usage_rows"), _rows_of_usage),
    Case("GET /v1/statistics", "models in each span", limit_of("statistics_models"), _statistics),
    Case("GET /v1/models", "workers", 1_000, _workers("/v1/models"), counted_at=200),
    Case("GET /v1/tools", "tools of each version", limit_of("declared_tools"), _tools),
    Case("GET /readyz", "workers", 1_000, _workers("/readyz"), counted_at=200),
    Case("GET /readyz", "tools that no worker has", limit_of("lacks"), _ready),
    Case("GET /healthz", "nothing", 4, _nothing),
)  # fmt: skip
"""The last one is the cheapest."""
