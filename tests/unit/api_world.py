"""The API on a Redis of its own, with a publisher that keeps what it is given; the tests play the workers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
from pydantic import SecretStr
from redis.asyncio import Redis
from starlette.types import ASGIApp
from starlette.types import Message as AsgiMessage

from api.app import ApiApplication, create_app
from api.app.installed import dialects_of
from palaver.config.policy import OperatorPolicy
from palaver.config.providers import Provider
from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure
from palaver.schemas.actions import ActionType
from palaver.schemas.models import Message, ToolCall
from palaver.steps.leases import Delivery, Delta, Lease
from palaver.steps.retry import RetryPolicy
from palaver.steps.verdicts import Continue, Finish, GiveUp, OpenCall
from palaver.store import Store
from palaver.store.fleet.fleet import WorkerReport
from palaver.tools import ToolSet, load_tools
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.clock import TurnedDatabase
from tests.store_server import Database
from tests.waiting import aeventually

AGENT: dict[str, Any] = {"model": "fake/tool-20", "tools": ["calculator"]}
BODY: dict[str, Any] = {"agent": AGENT, "input": "hello"}
SECRET_KEY = bytes(range(100, 132)).hex()
SETTINGS = Settings(redis_url="redis://fake/0", max_body=64 * 1024, secret_key=(SecretStr(SECRET_KEY),))
PROVIDERS = {"fake": Provider(base_url="http://127.0.0.1:1/v1", image_addresses=True)}
POLICIES = {"patient": RetryPolicy.parse({"rules": {"rate_limited": {"attempts": 20}}})}
_DIALECTS = dialects_of(("*",))
RUN_ID = "run_00" + "0" * 26
CONVERSATION_ID = "conv_00" + "0" * 26
WEBHOOK_ID = "wh_00" + "0" * 26


@dataclass
class RecordingPublisher:
    """A publisher that keeps what it is given."""

    deliveries: list[Delivery] = field(default_factory=list)

    def publish_soon(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries += deliveries

    async def close(self) -> None:
        pass


@dataclass
class World:
    """An API that serves, its client, and everything behind it."""

    app: ApiApplication
    client: httpx.AsyncClient
    store: Store
    redis: Redis
    server: Database | TurnedDatabase
    publisher: RecordingPublisher

    async def submit(self, **changes: Any) -> dict[str, Any]:
        """A run that was taken on."""
        answer = await self.client.post("/v1/runs", json={**BODY, **changes})
        assert answer.status_code == 202, answer.text
        run: dict[str, Any] = answer.json()
        return run

    async def read(self, run: dict[str, Any]) -> dict[str, Any]:
        """The run as it is now."""
        answer = await self.client.get(run["links"]["self"])
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def meet_worker(self) -> None:
        """Let a worker be there that can call the provider."""
        await self.store.fleet.report(WorkerReport("w-1", ("model",), 0, 1, draining=False, providers=("fake",)))

    async def claim(self, run: dict[str, Any]) -> Lease:
        """Work on the run's present model step."""
        step = str((await self.read(run))["step"])
        lease = await self.store.steps.claim(
            run["id"], run["conversation_id"], step, queues=("model",), worker="w-1", nonce="n", known=0
        )
        assert isinstance(lease, Lease), lease
        return lease

    async def say(self, lease: Lease, *texts: str) -> None:
        """Show deltas to watchers."""
        for text in texts:
            await self.store.steps.write_deltas([Delta(lease, text)])

    async def finish(self, run: dict[str, Any], text: str = "done", *, lease: Lease | None = None) -> None:
        """Let the model end its turn."""
        verdict = Finish(Message(role="assistant", content=text), StopReason.END_TURN)
        await self.store.steps.settle(lease or await self.claim(run), verdict)

    async def go_on(self, lease: Lease) -> None:
        """Let the run have another step."""
        await self.store.steps.settle(lease, Continue(Message(role="assistant", content="wait")))

    async def ask(self, run: dict[str, Any], *calls: OpenCall) -> dict[str, Any]:
        """Let the model ask for tools: the run then."""
        message = Message(role="assistant", tool_calls=tuple(each.call for each in calls))
        await self.store.steps.settle(await self.claim(run), Continue(message, calls=calls))
        return await self.read(run)

    async def fail(self, run: dict[str, Any], error_class: ErrorClass = ErrorClass.AUTHENTICATION) -> None:
        """Let the run fail."""
        verdict = GiveUp(Failure.of(error_class), StopReason.ERROR)
        await self.store.steps.settle(await self.claim(run), verdict)

    async def watched(self) -> int:
        """How many runs somebody watches."""
        return len(await self.redis.pubsub_channels())

    async def unwatched(self) -> bool:
        """Tell whether no run is watched: an answer may be over before its watcher has left."""
        return await self.watched() == 0


@asynccontextmanager
async def world(settings: Settings = SETTINGS, **changes: Any) -> AsyncIterator[World]:
    """An API on a Redis of its own, where a worker had these ``tools``; without any, there never was one. ``rules`` are
    the operator's, as in PALAVER_POLICY; ``server`` is the Redis of another such API."""
    server = changes.get("server") or Database()
    redis = server.client()
    store = Store(redis, settings)
    publisher = RecordingPublisher()
    providers = changes.get("providers", PROVIDERS)
    tools = changes.get("tools", load_tools(()))
    dialects = changes.get("dialects", _DIALECTS)
    if tools:
        await store.tools.publish(ToolSet.of(each.declaration for each in tools), ("tools",))
    policy = OperatorPolicy.model_validate_json(orjson.dumps({"rules": changes.get("rules", {})}))
    app = create_app(settings, store, publisher, providers, POLICIES, dialects, policy)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    try:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            yield World(app, client, store, redis, server, publisher)
    finally:
        server.connected = True
        await store.close()


def in_one_world(
    cases: Iterable[Any], *of_world: Any, **changes: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[[], Awaitable[None]]]:
    """Make one test of a function that takes an API and a case, where no case leaves anything for the next one to find:
    to begin an API takes longer than most questions to it. All cases that fail are told."""

    def decorate(function: Callable[..., Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        alone = len(inspect.signature(function).parameters) == 2

        async def test() -> None:
            wrong: list[AssertionError] = []
            async with world(*of_world, **changes) as api:
                for case in cases:
                    try:
                        await function(api, *((case,) if alone else case))
                    except AssertionError as error:
                        error.add_note(f"of the case {case!r:.300}")
                        wrong.append(error)
            if wrong:
                raise ExceptionGroup(f"{len(wrong)} cases failed", wrong)

        test.__name__, test.__doc__, test.__module__ = function.__name__, function.__doc__, function.__module__
        return test

    return decorate


class LiveRequest:
    """A request to the application whose answer is read as it comes: httpx's transport waits for the end."""

    def __init__(self, app: ASGIApp, method: str, path: str, headers: dict[str, str] | None = None) -> None:
        self.status = 0
        self.body = b""
        self.over = False
        plain, _, query = path.partition("?")
        given = {"host": "127.0.0.1", **(headers or {})}
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
            "method": method, "scheme": "http", "path": plain, "raw_path": plain.encode(), "root_path": "",
            "query_string": query.encode(), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        }  # fmt: skip
        self._messages: asyncio.Queue[AsgiMessage] = asyncio.Queue()
        self.task: asyncio.Future[None] = asyncio.ensure_future(app(scope, self._receive, self._send))

    def feed(self, chunk: bytes) -> None:
        """Send a piece of the request's body; more follows."""
        self._messages.put_nowait({"type": "http.request", "body": chunk, "more_body": True})

    def end(self) -> None:
        """Say that the request's body is over."""
        self._messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    async def until(self, condition: Callable[[bytes], object]) -> bytes:
        """The body so far, once it is as ``condition`` wants it."""
        await aeventually(lambda: condition(self.body))
        return self.body

    def disconnect(self) -> None:
        """Go away."""
        self._messages.put_nowait({"type": "http.disconnect"})

    async def _receive(self) -> AsgiMessage:
        return await self._messages.get()

    async def _send(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.body += message.get("body", b"")
            self.over = not message.get("more_body", False)


def call(call_id: str, awaits: ActionType | None = None, tool: str = "calculator", timeout: float = 60) -> OpenCall:
    """A call of a tool that may begin, or that waits for somebody first."""
    made = ToolCall(id=call_id, name=tool, arguments='{"expression": "2+2"}')
    return OpenCall(made, idempotent=False, awaits=awaits, timeout=timeout)


def events_of(text: str) -> list[tuple[str | None, str, dict[str, Any]]]:
    """The (id, name, data) of each event of a stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("id"), fields["event"], orjson.loads(fields["data"])))
    return found


def assert_problem(answer: httpx.Response, status: int, code: str, *pointers: str) -> dict[str, Any]:
    """Check that an answer is that problem, complete, about these places."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["code"] == code, problem
    assert problem["type"] == f"/errors/{code}"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert set(problem) >= {"detail", "instance", "errors"}
    if pointers:
        assert [fault["pointer"] for fault in problem["errors"]] == list(pointers), problem
    return problem
