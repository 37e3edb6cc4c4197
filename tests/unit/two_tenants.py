"""Two tenants of one API, and what the one may try with what is the other's: requests made of the document of the API,
so that a route which somebody adds is among those that are tried."""

from __future__ import annotations

import asyncio
import copy
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import orjson
import pytest
from fakeredis._socket._base import BaseFakeSocket

from api.http.auth import CallerKeys
from palaver.operations import Caller, StoredKeys
from palaver.store.access.api_keys import KeyGrant
from palaver.store.reading import records
from palaver.store.redis import access_keys
from palaver.store.redis.reach import EVERYTHING, reach
from palaver.store.scripting.scripts import VERSION, _sources
from palaver.store.scripting.shared_names import ScriptSettings
from palaver.vocabulary.ids import new_conversation_id, new_run_id, new_webhook_id, tenant_of, uuid_of
from palaver.vocabulary.scopes import SCOPES
from tests.contract.clock import TurnedDatabase
from tests.feature_cases import brought_to_tests
from tests.unit.api_world import AGENT, SETTINGS, World, call, world
from tests.waiting import PATIENCE

CANARY: Final = "canary-of-the-victim"
TENANTS: Final = {"acme": "acme00", "globex": "globex".replace("l", "1").replace("o", "0"), "default": ""}
OPERATOR: Final = "operator"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)?")


class TenantKeys(CallerKeys):
    """Keys of tenants, whose secrets are their names: in the place of the store's, which each request may ask for."""

    def __init__(self, stored: StoredKeys) -> None:
        super().__init__(SETTINGS, stored)
        self._callers = {name: Caller(True, "ci", tenant=tag) for name, tag in TENANTS.items()}
        self._callers[OPERATOR] = Caller(True, "root", operator=True)

    async def caller(self, key: bytes | None, *, ask_issuer: bool = True) -> tuple[Caller, None]:
        known = self._callers.get((key or b"").decode())
        return (replace(known, arrived=time.monotonic()) if known else Caller(trusted=False)), None


@asynccontextmanager
async def tenants(**changes: Any) -> AsyncIterator[World]:
    """An API with keys of several tenants, on a store in this process: what it is asked is asked in one order."""
    async with world(SETTINGS, server=TurnedDatabase(), **changes) as api:
        for name, tag in TENANTS.items():
            if tag:
                await api.redis.hset(access_keys.TENANTS, mapping={name: orjson.dumps({"tag": tag}), f"@{tag}": name})
        access = api.app.state.access
        api.app.state.access = replace(access, keys=TenantKeys(access.keys.stored))
        for name, tag in TENANTS.items():
            if tag:
                await api.redis.hset(access_keys.TENANTS, mapping={name: orjson.dumps({"tag": tag}), f"@{tag}": name})
        # Else the first request that needs a script would send one command more.
        for source in _sources(ScriptSettings.of(SETTINGS), VERSION).values():
            await api.redis.script_load(source)
        yield api


@contextmanager
def asking_as(api: World, who: str) -> Iterator[None]:
    """Let the client of the world send this key."""
    api.client.headers["authorization"] = f"Bearer {who}"
    try:
        yield
    finally:
        del api.client.headers["authorization"]


@dataclass
class Belongings:
    """What a tenant has."""

    runs: list[str] = field(default_factory=list)
    conversations: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    """By kind, what one may name in a request."""

    @property
    def names(self) -> set[str]:
        """What nobody else is to be shown."""
        return {
            *self.runs,
            *(run.replace("run_", "resp_") for run in self.runs),
            *self.conversations,
            *(str(uuid_of(each)) for each in self.conversations),
            CANARY,
        }


async def furnish(api: World, who: str) -> Belongings:
    """Let a tenant have a bit of everything, all with the canary in it."""
    has = Belongings()
    with asking_as(api, who):
        client = api.client
        await api.meet_worker()
        about = {"agent": {**AGENT, "instructions": CANARY}, "tags": [CANARY], "metadata": {"k": CANARY}}
        ended = await api.submit(**about, input=CANARY, secrets={"TOKEN": CANARY})
        await api.finish(ended, CANARY)
        waits = await api.submit(**about, input=CANARY)
        behind = await api.submit(conversation_id=waits["conversation_id"], input=CANARY, on_conflict="enqueue")
        agent = f"agent-of-{who}"
        kept = await client.put(f"/v1/agents/{agent}", json={**AGENT, "instructions": CANARY})
        assert kept.status_code == 201, kept.text
        key = await api.store.api_keys.create(KeyGrant(CANARY, TENANTS[who], who, frozenset(SCOPES)))
        actions = (await api.ask(waits, call("c1", "approval"), call("c2", "client_tool")))["pending_actions"]
        for more in brought_to_tests("furnish", "tenants").values():
            for kind, values in (await more(api, who)).items():
                has.values.setdefault(kind, []).extend(values)
        has.runs = [run["id"] for run in (await client.get("/v1/runs")).json()["data"]]
        has.conversations = [each["id"] for each in (await client.get("/v1/conversations")).json()["data"]]
        assert {ended["id"], waits["id"], behind["id"]} <= set(has.runs)
        assert {ended["conversation_id"], waits["conversation_id"]} <= set(has.conversations)
        pages = [
            (await client.get(path)).json()[name]
            for path, name in (
                ("/v1/runs?limit=1", "next_cursor"),
                ("/v1/conversations?limit=1", "next_cursor"),
            )
        ]
        assert all(pages)
    own = {
        "run": [ended["id"], waits["id"]],
        "conversation": [ended["conversation_id"], waits["conversation_id"]],
        "number": [uuid_of(waits["conversation_id"]).hex],
        "response": [run["id"].replace("run_", "resp_") for run in (ended, waits)],
        "action": [actions[0]["id"]],
        "agent": [agent],
        "key": [key.record.id],
        # Everybody knows that there is a default one.
        "tenant": [who] if TENANTS[who] else [],
        "run cursor": pages[:1],
        "conversation cursor": pages[1:],
    }
    for kind, values in own.items():
        has.values.setdefault(kind, []).extend(values)
    return has


_FURNISHED: Final[dict[str, tuple[Belongings, Sequence[tuple[bytes, int, bytes]]]]] = {}
"""Of each tenant that was furnished: what it has, and the keys of Redis with their times and values."""


async def furnish_again(api: World, who: str) -> Belongings:
    """As `furnish`, which takes most of the time of a short test: once for a process, and for others a copy of what it
    left in Redis. The tenant then looks at what it has, so that this API knows of it as well."""
    if who not in _FURNISHED:
        has = await furnish(api, who)
        keys = [key async for key in api.redis.scan_iter("*")]
        _FURNISHED[who] = (
            has,
            [(key, max(await api.redis.pttl(key), 0), await api.redis.dump(key) or b"") for key in keys],
        )
        return has
    has, stored = _FURNISHED[who]
    async with api.redis.pipeline(transaction=False) as pipe:
        for key, left, value in stored:
            pipe.restore(key, left, value, replace=True)
        await pipe.execute()
    await api.meet_worker()
    with asking_as(api, who):
        for path in (
            *(f"/v1/runs/{each}" for each in has.runs),
            *(f"/v1/conversations/{each}" for each in has.conversations),
        ):
            assert (await api.client.get(path)).status_code == 200, path
    return has


def unknown(kind: str, value: str, tag: str) -> str:
    """A value of the same kind that names nothing, of the tenant with this tag."""
    match kind:
        case "run":
            return new_run_id("00", tag)
        case "response":
            return new_run_id("00", tag).replace("run_", "resp_")
        case "conversation":
            return new_conversation_id(1, "00", tag)
        case "number":
            return uuid4().hex if "-" not in value else str(uuid4())
        case "event":
            # Of the same place and kind, but for the digest.
            return str(UUID(int=UUID(value).int ^ secrets.randbits(60)))
        case "agent":
            # Of the same form, which an answer may tell.
            return f"agent-of-{secrets.token_hex(8)[: len(value) - len('agent-of-')]}"
        case "schedule":
            return f"schedule-of-{secrets.token_hex(8)[: len(value) - len('schedule-of-')]}"
        case "batch":
            return f"batch_{secrets.token_hex(12)}"
        case "key":
            return secrets.token_hex(6)
        case "webhook":
            return new_webhook_id(tag)
        case "tenant":
            return secrets.token_hex(len(value))[: len(value)]
        case "action":
            return f"act_{uuid4().hex[:24]}"
        case "run cursor":
            return records.cursor((records.parse_cursor(value)[0], new_run_id("00", tag)))
        case "conversation cursor":
            return records.cursor((records.parse_cursor(value, "conv")[0], new_conversation_id(1, "00", tag)))
        case _:
            raise LookupError(kind)


@dataclass(frozen=True)
class Place:
    """A place of a request that a value may stand at."""

    where: str
    """path, query, header, or body."""
    name: str
    at: tuple[str | int, ...] = ()
    body: Any = None

    @property
    def takes_id(self) -> bool:
        """Whether it is there for an id; elsewhere an id is a text as any other."""
        return self.where == "path" or bool(re.search(r"(^|_)(ids?|cursor|conversation|event|taskId)$", self.name))


@dataclass(frozen=True)
class Operation:
    """An operation of the document."""

    method: str
    path: str
    document: Mapping[str, Any]
    described: Mapping[str, Any]

    @property
    def id(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def scopes(self) -> tuple[str, ...]:
        """What a key needs for it."""
        return tuple(scope for each in self.described.get("security", ()) for scope in each.get("key", ()))

    @property
    def streams(self) -> bool:
        """Whether it may answer with a stream, once something is there."""
        return "text/event-stream" in self.described["responses"].get("200", {}).get("content", {})

    def places(self) -> Iterator[Place]:
        """Every place for a text: of the path, of the query, of headers, and of bodies that fit."""
        for parameter in self.described.get("parameters", ()):
            if parameter["in"] == "path" or _takes_text(parameter["schema"], self.document):
                yield Place(parameter["in"], parameter["name"])
        for body in self.bodies():
            for at in _texts(body):
                yield Place("body", str(at[-1]), at, body)

    def bodies(self) -> Sequence[Any]:
        """Bodies: those of the examples, and one with all fields."""
        content = self.described.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            return []
        examples = [each["value"] for each in content.get("examples", {}).values()]
        return [*examples, _filled(content["schema"], self.document)]

    async def ask(self, client: httpx.AsyncClient, place: Place, value: str, accept: str = "*/*") -> httpx.Response:
        """Send a request with the value at the place; with nothing that is there anywhere else."""
        path, query, body = self.path, {}, place.body if place.where == "body" else next(iter(self.bodies()), None)
        headers = {"accept": accept}
        for name in re.findall(r"{(\w+)}", path):
            path = path.replace(f"{{{name}}}", value if name == place.name else NOTHING[name])
        if place.where == "query":
            query[place.name] = value
        elif place.where == "header":
            headers[place.name] = value
        elif place.where == "body":
            body = _changed(body, place.at, value)
        sent = {} if body is None else {"json": body}
        return await client.request(self.method, path, params=query, headers=headers, **sent)


_STANDS_AT: Final = {
    "agent": re.compile("^(name|agents?)$"),
    "schedule": re.compile("^name$"),
    "batch": re.compile("^(batch_id|cursor)$"),
    "key": re.compile("^api_key_id$"),
    "webhook": re.compile("^webhook_id$"),
    "tenant": re.compile("^(name|tenant)$"),
}
"""Names of places where something is one of those: elsewhere it is a text as any other."""
NOTHING: Final = {
    "run_id": new_run_id("00"),
    "response_id": new_run_id("00").replace("run_", "resp_"),
    "item_id": "msg_1",
    "conversation_id": new_conversation_id(1, "00"),
    "conversation": str(uuid4()),
    "event": str(uuid4()),
    "api_key_id": "0" * 12,
    "webhook_id": new_webhook_id(),
    "batch_id": f"batch_{secrets.token_hex(12)}",
    "name": "nobody",
    "chat_id": new_conversation_id(1, "00"),
    "thread_id": new_conversation_id(1, "00"),
    "tenant": "nobody",
}
"""For each part of a path, what is not there."""


def operations_of(document: Mapping[str, Any]) -> list[Operation]:
    """All that the API does."""
    return [
        Operation(method.upper(), path, document, described)
        for path, item in document["paths"].items()
        for method, described in item.items()
    ]


@dataclass
class Leak(Exception):
    """What the one has seen of the other."""

    what: str
    answers: Sequence[str]

    def __str__(self) -> str:
        return "\n".join((self.what, *self.answers))


class Attack:
    """One tenant's tries at what another one has."""

    def __init__(self, api: World, victim: Belongings, victims: str, attackers: str) -> None:
        self._api = api
        self._victim = victim
        self._tags = TENANTS[victims], TENANTS[attackers]
        self._attacker = attackers
        self.tried = 0
        self._commands: list[str] = []

    async def on(self, operation: Operation, places: Iterable[Place] | None = None) -> None:
        """Try it with each value of the victim at each of its places, or at these. Raises Leak."""
        before = await self._state()
        if operation.method == "PUT":
            # What is put again is there before.
            await self._ask(operation, Place("nowhere", ""), "", "*/*")
        for place in operation.places() if places is None else places:
            for kind, values in self._victim.values.items():
                if not _STANDS_AT.get(kind, re.compile("")).search(place.name):
                    continue
                for value in values:
                    await self._try(operation, place, kind, value)
        if await self._state() != before:
            raise Leak(f"{operation.id} has changed something", ())

    async def _try(self, operation: Operation, place: Place, kind: str, value: str) -> None:
        for accept in ("*/*", "text/event-stream") if operation.streams and place.where == "path" else ("*/*",):
            # Of cursors only those of the same length: what is refused as no cursor says how long it is.
            tags = self._tags[:1] if kind.endswith("cursor") else dict.fromkeys(self._tags)
            others = [unknown(kind, value, tag) for tag in tags]
            known, *rest = [await self._ask(operation, place, each, accept) for each in (value, *others)]
            if any(known.comparable != other.comparable for other in rest):
                # What an API knows for some seconds it may have asked for again amid these.
                known, *rest = [await self._ask(operation, place, each, accept) for each in (value, *others)]
            self.tried += 1
            what = f"{operation.id}: {kind} {value} at {place.where} {place.name} {place.at}"
            for shown in self._victim.names:
                if shown != value and shown in known.text.replace(value, ""):
                    raise Leak(f"{what} shows {shown}", (known.text,))
            for other in rest:
                if (place.where, place.name, kind) == ("body", "id", "conversation") and other is rest[-1]:
                    # One's own id may be chosen for something new; another's may not, whether it is there or not.
                    continue
                if known.comparable != other.comparable:
                    raise Leak(f"{what} is not answered as unknown ones", (str(known), str(other)))

    async def _ask(self, operation: Operation, place: Place, value: str, accept: str) -> Seen:
        self._commands.clear()
        with asking_as(self._api, self._attacker), counting(self._commands):
            answer = await operation.ask(self._api.client, place, value, accept)
        if answer.status_code == 201:
            for tidy in brought_to_tests("tidy", "tenants").values():
                await tidy(self._api.redis, self._tags[1])
        return Seen.of(answer, value, self._commands, safe=operation.method == "GET")

    async def _state(self) -> Mapping[str, Any]:
        """All that is stored of the victim."""
        redis, state = self._api.redis, {}
        names = sorted([name.decode() async for name in redis.scan_iter("*")])
        tag = self._tags[1]
        attackers = (
            f"{{palaver:agents{':' * bool(tag)}{tag}}}",
            *(
                beginning
                for own_keys in brought_to_tests("own_keys", "tenants").values()
                for beginning in own_keys(tag)
            ),
        )
        for name in names:
            # What the attacker calls its own agents and schedules tells nothing.
            if not name.startswith(attackers) and any(each in name for each in self._victim.names):
                state[name] = await redis.dump(name)
        return state


@dataclass(frozen=True)
class Seen:
    """An answer as whoever has sent the request can tell it from another one."""

    status: int
    headers: Sequence[tuple[str, str]]
    text: str
    commands: Sequence[str]
    exact: bool
    """False if something was done, of which the answer tells: times and new ids differ then."""

    @classmethod
    def of(cls, answer: httpx.Response, value: str, commands: Sequence[str], *, safe: bool) -> Seen:
        request_id = answer.headers["x-request-id"]
        number = str(UUID(value)) if re.fullmatch(r"[0-9a-f-]{32,36}", value) else value
        text = answer.text.replace(request_id, "REQUEST")
        headers = [(name, text) for name, text in answer.headers.items() if name not in ("x-request-id", "date")]
        # A dialect that answers 200 whatever becomes of it says in the body that nothing was done.
        refused = answer.status_code >= 400 or '"isError":true' in text or '"error":{' in text
        return cls(answer.status_code, headers, text, tuple(commands), safe or refused).without(value, number)

    def without(self, *values: str) -> Seen:
        """The same, with a word in the place of what the client has sent itself."""
        text, headers = self.text, [f"{name}: {value}" for name, value in self.headers]
        for value in sorted(values, key=len, reverse=True):
            for written in dict.fromkeys((value, value.replace("/", "%2F"), value.replace("/", "~1"))):
                text = text.replace(written, "ID")
                headers = [each.replace(written, "ID") for each in headers]
        # What a number is called here, is made of the number and of the caller's own tenant.
        text = re.sub(r"\b(conv|run)_\w{28,37}\b", r"\1_ID", text)
        return replace(
            self,
            text=_TIME.sub("TIME", text),
            headers=[tuple(each.split(": ", 1)) for each in headers if not each.startswith("content-length")],  # type: ignore[misc]
        )

    @property
    def comparable(self) -> object:
        """What has to be the same."""
        return (self.status, self.headers, self.text, self.commands) if self.exact else self.status


@contextmanager
def counting(commands: list[str]) -> Iterator[None]:
    """Note the commands of Redis that requests send, by name; not those that the process itself sends, and not those
    about no run and no conversation, which are sent now and then."""
    process = BaseFakeSocket._process_command

    def noting(self: Any, fields: Any) -> Any:
        if fields and reach() != EVERYTHING:
            name = fields[0].decode().lower()
            if name == "evalsha" or any(b"run_" in each or b"conv_" in each for each in fields):
                commands.append(name)
        return process(self, fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseFakeSocket, "_process_command", noting)
        yield


async def hear(api: World, path: str, who: str, *, in_frame: bool = False) -> list[Mapping[str, Any]]:
    """What a socket says until it is closed, or its first word; the key comes in a header, or in the first frame."""
    sent: list[Mapping[str, Any]] = []
    over = asyncio.Event()
    greeting = orjson.dumps({"type": "auth", "session_api_key": who}).decode()
    first: list[Mapping[str, Any]] = [{"type": "websocket.connect"}]
    if in_frame:
        first.insert(0, {"type": "websocket.receive", "text": greeting})

    async def receive() -> Mapping[str, Any]:
        if first:
            return first.pop()
        await over.wait()
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)
        if message["type"] in ("websocket.close", "websocket.send"):
            over.set()

    scope = {
        "type": "websocket", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "ws", "path": path,
        "raw_path": path.encode(), "root_path": "", "query_string": b"", "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "subprotocols": [],
        "headers": [(b"host", b"127.0.0.1"), *([] if in_frame else [(b"authorization", f"Bearer {who}".encode())])],
    }  # fmt: skip
    async with asyncio.timeout(PATIENCE):
        serving = asyncio.ensure_future(api.app(scope, receive, send))  # type: ignore[arg-type]
        waiting = asyncio.ensure_future(over.wait())
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        over.set()
        await serving
        await waiting
    return sent


def _takes_text(schema: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    schema = _resolved(schema, document)
    if "anyOf" in schema:
        return any(_takes_text(each, document) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return _takes_text(schema["items"], document)
    return schema.get("type") == "string" and "enum" not in schema and "const" not in schema


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def _filled(schema: Mapping[str, Any], document: Mapping[str, Any], depth: int = 0) -> Any:
    """A value with all fields that the schema names, as far as they may name something."""
    schema = _resolved(schema, document)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            options = [each for each in schema[choice] if _resolved(each, document).get("type") != "null"]
            return _filled(options[0], document, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {}) if depth < 4 else {}
            needed = schema.get("required", ())
            return {
                name: _filled(each, document, depth + 1)
                for name, each in fields.items()
                if name in needed or name == "id" or name.endswith("_id")
            }
        case "array":
            return [_filled(schema.get("items", {}), document, depth + 1)] if depth < 4 else []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case _:
            return "x"


def _texts(body: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a body has texts."""
    if isinstance(body, str) and at:
        yield at
    elif isinstance(body, Mapping):
        for name, value in body.items():
            yield from _texts(value, (*at, name))
    elif isinstance(body, list):
        for number, value in enumerate(body):
            yield from _texts(value, (*at, number))


def _changed(body: Any, at: tuple[str | int, ...], value: str) -> Any:
    changed = copy.deepcopy(body)
    inner = changed
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = value
    return changed


def tags_in(text: str) -> set[str]:
    """The tags of all ids in a text."""
    return {tenant_of(each) for each in re.findall(r"\b(?:run|conv)_[0-9a-z_]{28,37}\b", text)}


def parsed(text: str) -> Any:
    """JSON."""
    return orjson.loads(text)
