"""What the largest admitted input of each route costs: ``python -m tests.cost.handlers`` measures it on this machine.

Each case is a request of size ``n``, up to what the limits admit. How much is done for it is counted in calls, on a
fake Redis, for ``n``, ``2n`` and ``4n`` (tests/cost/test_handlers.py). How long it has the event loop for itself is
measured at the limit, with a real Redis beside it, in processor time: others on this machine do not count.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from fastapi.routing import APIRoute
from redis.asyncio import Redis
from starlette.types import Message as AsgiMessage

from api.app import create_app
from api.routes import ROUTERS
from palaver.errors import ErrorClass, Failure
from palaver.lifecycle import StopReason
from palaver.limits import MIB, most
from palaver.models import Message, Submission
from palaver.settings import Settings
from palaver.store import Store
from palaver.store.fleet import WorkerReport
from palaver.testing.redis_server import RedisServer
from palaver.tools import load_tools
from palaver.verdicts import Continue, GiveUp
from tests.cost.work import counted
from tests.unit.api_world import POLICIES, PROVIDERS, SETTINGS, RecordingPublisher, World, call, world

LARGE: Final = SETTINGS.model_copy(update={"max_body": MIB})
ROUTES: Final = frozenset(
    f"{method} {route.path_format}"
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in route.methods
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
    """The largest ``n`` that is counted; ``largest`` if 0."""


@dataclass
class Cost:
    """What a request cost."""

    status: int = 0
    calls: int = 0
    held: float = 0.0
    """Seconds of processor time for which the event loop did nothing else, at most at a time."""


async def ask(api: World, case: Case, wanted: Ask, cost: Cost) -> None:
    """Make the request, and note its status. The application is called as a server calls it."""
    path, _, query = wanted.path.partition("?")
    raw = wanted.body if isinstance(wanted.body, bytes) else b"" if wanted.body is None else _json(wanted.body)
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "http",
        "method": case.route.split()[0], "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"),
                    (b"accept", wanted.accept.encode())],
    }  # fmt: skip
    given: list[AsgiMessage] = [{"type": "http.request", "body": raw}]

    async def receive() -> AsgiMessage:
        return given.pop() if given else await asyncio.Future()

    async def send(message: AsgiMessage) -> None:
        cost.status = message.get("status", cost.status)

    await api.app(scope, receive, send)


async def count(case: Case, n: int) -> Cost:
    """The calls of the case's request of size ``n``."""
    cost = Cost()
    async with world(LARGE) as api:
        wanted = await case.prepare(api, n)
        # What is made once, at the first request, is not what this one costs.
        await ask(api, CASES[-1], Ask("/healthz"), Cost())
        with counted() as work:
            await ask(api, case, wanted, cost)
    cost.calls = work.calls
    return cost


@contextmanager
def watched(cost: Cost) -> Iterator[None]:
    """Note how long each turn of the event loop takes."""
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        cost.held = max(cost.held, time.thread_time() - began)

    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


async def measure(case: Case, url: str) -> Cost:
    """The case at its largest, with a real Redis: the best of five."""
    best = Cost(held=math.inf)
    for _ in range(5):
        async with real_world(url) as api:
            wanted, cost = await case.prepare(api, case.largest), Cost()
            await asyncio.sleep(0.05)
            with watched(cost):
                await asyncio.create_task(ask(api, case, wanted, cost))
            best = min(best, cost, key=lambda each: each.held)
    return best


@asynccontextmanager
async def real_world(url: str) -> AsyncIterator[World]:
    """An API on an empty Redis."""
    settings = Settings(redis_url=url, max_body=MIB)
    redis, publisher = Redis.from_url(url), RecordingPublisher()
    await redis.flushall()
    async with Store.connect(settings) as store:
        app = create_app(settings, store, publisher, PROVIDERS, load_tools(()), POLICIES)
        async with app.router.lifespan_context(app):
            yield World(app, None, store, redis, None, publisher)  # type: ignore[arg-type]
    await redis.aclose()


async def _submitted(api: World, messages: int = 1, agent: dict[str, Any] | None = None) -> dict[str, Any]:
    """A run whose conversation has so many messages."""
    said = [{"role": "user", "content": f"message {n}"} for n in range(messages)]
    body = {"agent": agent or AGENT, "input": said, "tags": ["a", "b"], "metadata": {"k": "v"}}
    made = await api.store.runs.submit(Submission.model_validate_json(json.dumps(body)))
    run = await api.store.runs.get(made.run_id)
    return run.model_dump(mode="json")


async def _asked(api: World, calls: int) -> dict[str, Any]:
    """A run that waits for so many outputs and as many decisions."""
    run = await _submitted(api)
    kinds = ("client_tool", "approval")
    await api.store.steps.settle(
        await _claimed(api, run),
        _continue(*(call(f"call_{n}", kinds[n % 2]) for n in range(calls))),  # type: ignore[arg-type]
    )
    return (await api.store.runs.get(run["id"])).model_dump(mode="json")


async def _claimed(api: World, run: dict[str, Any]) -> Any:
    return await api.store.steps.claim(run["id"], run["conversation_id"], "1", worker="w-1", nonce="n", known=0)


def _continue(*calls: Any) -> Any:
    return Continue(Message(role="assistant", tool_calls=tuple(each.call for each in calls)), calls=calls)


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


def _body(route: str, make: Callable[[int], Any]) -> Callable[[World, int], Awaitable[Ask]]:
    async def prepare(api: World, n: int) -> Ask:
        return Ask(route, make(n))

    return prepare


def _runs(made: Callable[[World, dict[str, Any]], Ask], *, body: Callable[[int], Any] | None = None) -> Any:
    """A request about one run of a conversation with ``n`` messages, or with a body of size ``n``."""

    async def prepare(api: World, n: int) -> Ask:
        run = await _submitted(api, 1 if body else n)
        wanted = made(api, run)
        return Ask(wanted.path, body(n) if body else wanted.body, wanted.accept)

    return prepare


def _fields(n: int) -> dict[str, Any]:
    return {f"field_{k}": k for k in range(n)}


def _schema(n: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{k}": {"type": "string"} for k in range(n)}}


def _glob(n: int) -> str:
    return f"[c{chr(ord('A') + n % 26)}{chr(ord('0') + n // 26)}]*a*l*c*u*l*a*t*o*r*"


async def _many_runs(api: World, n: int) -> None:
    for _ in range(n):
        await _submitted(api)


async def _list(api: World, n: int) -> Ask:
    await _many_runs(api, n)
    return Ask("/v1/runs?limit=200&tag=no-run-has-this")


async def _list_long(api: World, n: int) -> Ask:
    for _ in range(n):
        await _submitted(api, agent={**AGENT, "instructions": "é" * most("instructions")})
    return Ask("/v1/runs?limit=200")


async def _bulk(api: World, n: int) -> Ask:
    await _many_runs(api, n)
    return Ask("/v1/runs/actions", {"action": "cancel", "all": True})


async def _pending(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{(await _asked(api, n))['id']}")


async def _cancel_calls(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{(await _asked(api, n))['id']}/cancel", {"reason": "x" * most("reason")})


async def _answers(api: World, n: int) -> Ask:
    run = await _asked(api, n)
    items = [
        {"type": "tool_output", "call_id": each["call_id"], "output": "x" * 1000}
        if each["type"] == "client_tool"
        else {"type": "approval", "action_id": each["id"], "decision": "edit", "arguments": {"expression": "1"}}
        for each in run["pending_actions"]
    ]
    return Ask(f"/v1/runs/{run['id']}/input", {"items": items})


async def _failed(api: World, n: int) -> dict[str, Any]:
    run = await _submitted(api, n)
    verdict = GiveUp(Failure.of(ErrorClass.AUTHENTICATION), StopReason.ERROR)
    await api.store.steps.settle(await _claimed(api, run), verdict)
    return run


async def _retry(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{(await _failed(api, n))['id']}/retry", {})


async def _fork(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{(await _failed(api, n))['id']}/retry", {"from_step": 1, "input": "and"})


async def _delete(api: World, n: int) -> Ask:
    return Ask(f"/v1/runs/{(await _failed(api, n))['id']}")


async def _delete_conversation(api: World, n: int) -> Ask:
    return Ask(f"/v1/conversations/{(await _failed(api, n))['conversation_id']}")


async def _workers(api: World, n: int) -> Ask:
    for k in range(n):
        await api.store.fleet.report(WorkerReport(f"w-{k}", "model", in_flight=1, capacity=50, draining=False))
    return Ask("/v1/queues")


async def _nothing(api: World, n: int) -> Ask:
    return Ask("/healthz")


async def _ready(api: World, n: int) -> Ask:
    return Ask("/readyz")


def _events(accept: str) -> Any:
    async def prepare(api: World, n: int) -> Ask:
        run = await _failed(api, n)
        return Ask(f"/v1/runs/{run['id']}/events?limit=1000", accept=accept)

    return prepare


def _of_conversation(rest: str) -> Any:
    return _runs(lambda api, run: Ask(f"/v1/conversations/{run['conversation_id']}{rest}"))


_VALUES: Final = most("body_values") - 100
_SUBMIT: Final = "POST /v1/runs"
_INPUT: Final = "POST /v1/runs/{run_id}/input"
_PAIRS: Final = most("input_messages") // 2

CASES: Final = (
    Case(_SUBMIT, "unknown fields", _VALUES, _body("/v1/runs", _fields)),
    Case(_SUBMIT, "unknown fields of a message", _VALUES,
         _body("/v1/runs", lambda n: {"agent": AGENT, "input": [{"role": "user", **_fields(n)}]})),
    Case(_SUBMIT, "tool calls without anything", _VALUES,
         _body("/v1/runs", lambda n: {"agent": AGENT, "input": [{"role": "assistant", "tool_calls": [{}] * n}]})),
    Case(_SUBMIT, "entries of metadata", _VALUES // 2,
         _body("/v1/runs", lambda n: {"agent": AGENT, "input": "x", "metadata": _fields(n)})),
    Case(_SUBMIT, "lists in lists", _VALUES, _body("/v1/runs", lambda n: {"agent": AGENT, "input": [[[]] * (n // 2)]})),
    Case(_SUBMIT, "objects, refused unread", MIB // 3 - 1, _body("/v1/runs", lambda n: b"[%b{}]" % (b"{}," * (n - 1)))),
    Case(_SUBMIT, "commas in a text", most("input_text"),
         _body("/v1/runs", lambda n: {"agent": AGENT, "input": "," * n})),
    Case(_SUBMIT, "characters", most("input_text"),
         _body("/v1/runs", lambda n: {"agent": {**AGENT, "instructions": "é" * (n // 4)}, "input": "x" * n})),
    Case(_SUBMIT, "messages", 2 * _PAIRS,
         _body("/v1/runs", lambda n: {"agent": AGENT, "input": [{"role": "user", "content": "hello"}] * n})),
    Case(_SUBMIT, "messages without a result", 2 * _PAIRS, _body("/v1/runs", lambda n: {"agent": AGENT, "input": [
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "t"}]}, {"role": "user"}] * (n // 2)})),
    Case(_SUBMIT, "tools that are none", most("agent_tools"),
         _body("/v1/runs", lambda n: {"agent": {**AGENT, "tools": [f"nothing_{k}" for k in range(n)]}, "input": "x"})),
    Case(_SUBMIT, "globs", most("approval_patterns"), _body("/v1/runs", lambda n: {"agent": {
        **AGENT, "tools": ["calculator"], "approvals": {"require": [_glob(k) for k in range(n)]}}, "input": "x"})),
    Case(_SUBMIT, "client tools", most("agent_tools"), _body("/v1/runs", lambda n: {"agent": {**AGENT, "client_tools": [
        {"name": f"tool_{k}", "parameters": _schema(30)} for k in range(n)]}, "input": "x"})),
    Case(_SUBMIT, "fields of a schema", 900, _body("/v1/runs", lambda n: {"agent": {**AGENT, "client_tools": [
        {"name": "tool", "parameters": _schema(n)}]}, "input": "x"})),
    Case("GET /v1/runs", "runs that a filter looks at", 5_000, _list, counted_at=400),
    Case("GET /v1/runs", "runs with the longest instructions", 40, _list_long, counted_at=20),
    Case("GET /v1/runs/{run_id}", "pending actions", CALLS, _pending),
    Case("DELETE /v1/runs/{run_id}", "messages of the run", most("input_messages"), _delete),
    Case("POST /v1/runs/actions", "runs", most("bulk_runs"), _bulk, counted_at=200),
    Case("POST /v1/runs/actions", "unknown fields", _VALUES, _body("/v1/runs/actions", _fields)),
    Case("POST /v1/runs/{run_id}/cancel", "open calls", CALLS, _cancel_calls),
    Case("POST /v1/runs/{run_id}/cancel", "unknown fields", _VALUES,
         _runs(lambda api, run: Ask(f"/v1/runs/{run['id']}/cancel"), body=_fields)),
    Case(_INPUT, "calls that are answered", CALLS, _answers),
    Case(_INPUT, "words", most("run_items"), _runs(lambda api, run: Ask(f"/v1/runs/{run['id']}/input"), body=lambda n: {
        "items": [{"type": "message", "content": "In metres, please."}] * n})),
    Case(_INPUT, "unknown fields", _VALUES - 200, _runs(lambda api, run: Ask(f"/v1/runs/{run['id']}/input"),
         body=lambda n: {"items": [{"type": "pause", **_fields(n // 200)}] * 200})),
    Case("POST /v1/runs/{run_id}/retry", "messages of the run", most("input_messages"), _retry),
    Case("POST /v1/runs/{run_id}/retry", "messages to fork", most("input_messages"), _fork),
    Case("POST /v1/runs/{run_id}/retry", "unknown fields", _VALUES,
         _runs(lambda api, run: Ask(f"/v1/runs/{run['id']}/retry"), body=_fields)),
    Case("GET /v1/runs/{run_id}/events", "events of a page", most("input_messages"), _events("application/json")),
    Case("GET /v1/runs/{run_id}/events", "events of a stream", most("input_messages"), _events("text/event-stream")),
    Case("POST /v1/conversations", "unknown fields", _VALUES, _body("/v1/conversations", _fields)),
    Case("GET /v1/conversations/{conversation_id}", "entries", most("input_messages"), _of_conversation("")),
    Case("GET /v1/conversations/{conversation_id}/messages", "entries", most("input_messages"),
         _of_conversation("/messages?limit=500")),
    Case("DELETE /v1/conversations/{conversation_id}", "entries", most("input_messages"), _delete_conversation),
    Case("GET /v1/queues", "workers", 1_000, _workers, counted_at=200),
    Case("GET /readyz", "nothing", 4, _ready),
    Case("GET /healthz", "nothing", 4, _nothing),
)  # fmt: skip
"""The last one is the cheapest."""


async def _exponent(case: Case) -> float:
    """How the calls grow from half of the largest size that is counted to the whole."""
    n = case.counted_at or case.largest
    half, whole = [(await count(case, each)).calls for each in (n // 2, n)]
    return math.log2(whole / half)


async def main() -> None:
    """Print the table of docs/limits.md."""
    print("| route | of what | at most | grows as | holds the loop |")
    print("|---|---|---|---|---|")
    with RedisServer() as server:
        for case in CASES:
            cost = await measure(case, server.url)
            grows = max(await _exponent(case), 0)
            what = f"| `{case.route}` | {case.what} | {case.largest:,} |"
            print(f"{what} n^{grows:.2f} | {cost.held * 1000:.0f} ms |")


if __name__ == "__main__":
    asyncio.run(main())
