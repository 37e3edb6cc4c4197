"""What holds in the store between any two calls: one walk over all keys, after every test and random step."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson

from palaver.feature import features
from palaver.store.reading.events import from_channel
from palaver.store.reading.records import USAGE_FIELDS
from palaver.store.redis import access_keys, fleet_keys, keys
from palaver.vocabulary.lifecycle import TRANSITIONS, RunStatus, StopReason
from tests.contract.counts import check_caps, check_counts, check_waiting
from tests.contract.families import check_families
from tests.contract.turns import check_turns
from tests.declared_events import DURABLE, declared
from tests.feature_cases import brought_to_tests

OPEN = {status.value for status, targets in TRANSITIONS.items() if targets}
"""The statuses that a run can still leave."""
MESSAGES = ("message.created", "tool.finished", "conversation.condensed")
"""What models are told of."""

_OWN = "usage:|in_flight$|capped_in$|backlog:|passing$|erasure$|outbox$|statistics$"
"""Keys that each owner has for itself, and that are no lists of runs or conversations."""


@dataclass
class Shard:
    """What one shard holds, decoded."""

    due: dict[str, float] = field(default_factory=dict)
    ready: defaultdict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    in_flight: dict[str, set[str]] = field(default_factory=dict)
    """By owner."""
    backlogs: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    """By owner and queue."""
    turns: defaultdict[tuple[str, str], dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """By kind of list and queue."""
    capped_in: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By owner."""
    undelivered: defaultdict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    lacking: set[str] = field(default_factory=set)
    waiting: dict[str, dict[str, float]] = field(default_factory=dict)
    pending: dict[str, dict[str, float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    meters: dict[str, float] = field(default_factory=dict)
    caps: dict[str, int] = field(default_factory=dict)
    """Caps of tenants, each with its owner in front of it."""
    usage: Counter[str] = field(default_factory=Counter)
    """The ledgers of all days: a number for each column."""
    erased: set[str] = field(default_factory=set)
    """Tags of tenants that are, or are being."""
    journal: list[str] = field(default_factory=list)
    """The lines that are in no tally yet."""
    statistics: dict[str, dict[str, str]] = field(default_factory=dict)
    """By owner, the tallies by their places."""
    listed: dict[str, dict[str, float]] = field(default_factory=dict)
    """Lists of runs: of all of them (``""``), and of those with a status."""
    ended: dict[str, float] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)
    updated: dict[str, float] = field(default_factory=dict)
    expiring: dict[str, float] = field(default_factory=dict)
    """These three are the lists of conversations."""
    owned: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """By owner, the lists that are not the default tenant's; what all these have is in the lists above, too."""
    runs: dict[str, dict[str, str]] = field(default_factory=dict)
    steps: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    conversations: dict[str, dict[str, str]] = field(default_factory=dict)
    logs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    feeds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    lasting: set[str] = field(default_factory=set)
    """Keys without a TTL."""
    traced: set[str] = field(default_factory=set)
    """Runs whose events are kept for their trace."""
    spans: list[dict[str, str]] = field(default_factory=list)
    """What traces are to be told."""
    of_features: dict[str, Any] = field(default_factory=dict)
    """What features have in the shard, by its kind: each looks at its own in ``check_shard``."""

    def unfinished(self, conversation_id: str) -> list[str]:
        """The runs of a conversation that have not ended."""
        return [
            run_id
            for run_id, run in self.runs.items()
            if run["conversation"] == conversation_id and run["status"] in OPEN
        ]


async def check_whole(redis: Any, *, max_losses: int = 3) -> None:
    """Assert the invariants of the store, as far as they can be read off the keys."""
    moves = getattr(redis, "moves", None)
    for shard in (await read_shards(redis)).values():
        for run_id in shard.runs:
            _check_run(shard, run_id, max_losses)
        for conversation_id in shard.conversations:
            _check_conversation(shard, conversation_id, whole=not (moves and moves.deleted))
        _check_indexes(shard)
        check_families(shard)
        check_waiting(shard)
        check_caps(shard)
        check_counts(shard)
        for check_shard in brought_to_tests("check_shard").values():
            check_shard(shard)
        check_turns(shard)


async def _check_agents(redis: Any, name: str, ttl: int) -> None:
    """Agents on the server stay; of one that was removed, the numbers of its versions are known for a while."""
    tag, _, rest = name.partition("}:")
    if rest == "names":
        assert ttl == -1, f"{name} has a TTL"
        return
    if rest in ("passing", "erasure"):
        assert ttl > 0, f"{name} has no TTL"
        return
    kind, _, agent = rest.partition(":")
    assert kind == "agent", f"{name} is a key that nobody knows"
    versions, listed = _text(await redis.hgetall(name)), _text(await redis.hgetall(f"{tag}}}:names"))
    newest, oldest = int(versions["newest"]), int(versions["oldest"])
    assert ("removed" in versions) == (ttl > 0) == (agent not in listed), f"{name} is half removed"
    if agent in listed:
        numbered = {f"{what}:{number}" for what in ("spec", "facts") for number in range(oldest, newest + 1)}
        assert versions.keys() == {"newest", "oldest", *numbered}, f"{name} has other versions than it says"
        assert int(listed[agent]) == newest, f"{name} is not listed in its newest version"


async def _check_api_key(redis: Any, name: str, ttl: int) -> None:
    """A key of the API goes some time after it has expired, and what is known of its use goes, too."""
    kind = name.split(":")[2]
    assert kind in ("erasure", "key", "of", "signing", "used", "version"), f"{name} is a key that nobody knows"
    expires = kind == "key" and orjson.loads(await redis.get(name))["expires_at"] is not None
    assert (ttl > 0) == (expires or kind in ("signing", "used")), f"{name} has the TTL {ttl}"


@cache
def _checks() -> Mapping[str, Callable[[Any, str, int], Awaitable[None]]]:
    """What checks a key of a feature, by its hash tag."""
    return {str(features()[name].hash_tag): check for name, check in brought_to_tests("check_key").items()}


async def read_shards(redis: Any) -> dict[str, Shard]:
    """Everything there is, by shard. Fails on a key of no known kind, and on a forgotten or missing TTL."""
    shards: dict[str, Shard] = {}
    for text, ttl, value in await _everything(redis):
        if text in (
            fleet_keys.WORKERS,
            fleet_keys.TOOL_SETS,
            fleet_keys.WORKER_PROVIDERS,
            fleet_keys.WORKER_QUEUES,
            access_keys.TENANTS,
        ):
            continue
        if text in (fleet_keys.SWEEPERS, fleet_keys.BUSY, fleet_keys.FEATURES):
            continue
        if text.startswith(("palaver:worker:", f"{fleet_keys.TOOL_SETS}:", "{palaver:provider:")):
            assert ttl > 0, f"{text} has no TTL"
            continue
        if text.startswith("{palaver:agents"):
            await _check_agents(redis, text, ttl)
            continue
        if text.partition("}:")[2].partition(":")[0] == "events":
            assert ttl > 0, f"{text} has no TTL"
            continue
        if (check_key := _checks().get(text.partition("}:")[0] + "}")) is not None:
            await check_key(redis, text, ttl)
            continue
        if text.startswith("{palaver:audit}:"):
            assert ttl > 0 or text.startswith("{palaver:audit}:erasure:"), f"{text} has no TTL"
            continue
        if text.startswith("{palaver:keys}:"):
            await _check_api_key(redis, text, ttl)
            continue
        tag, _, rest = text.partition(":")
        shard = shards.setdefault(tag[2:4], Shard())
        kind, _, key_id = rest.partition(":")
        if ttl == -1:
            shard.lasting.add(rest)
        owner = ""
        if kind.startswith("@") and re.match(_OWN, key_id):
            owner, (kind, _, key_id) = f"{kind}:", key_id.partition(":")
        if kind.startswith("@"):
            shard.owned.setdefault(f"{kind}:", {})[key_id] = value
        elif kind == "run":
            shard.runs[key_id] = value
        elif kind == "steps":
            shard.steps[key_id] = {step: orjson.loads(t) for step, t in value.items()}
        elif kind == "conv":
            shard.conversations[key_id] = value
        elif kind in ("log", "feed"):
            (shard.logs if kind == "log" else shard.feeds)[key_id] = value
        elif kind in ("erasure", "outboxes"):
            continue
        elif kind == "erased":
            shard.erased = set(value)
        elif kind in ("idem", "copy", "copied", "left", "rewound", "passing", "outbox"):
            assert ttl > 0, f"{text} has no TTL"
        elif kind == "generation":
            assert value
        elif kind == "ready":
            shard.ready[key_id] = value
        elif kind == "in_flight":
            shard.in_flight[owner] = set(value)
        elif kind == "capped_in":
            shard.capped_in[owner] = set(value)
        elif kind == "backlog":
            shard.backlogs[owner, key_id] = value
        elif kind in ("turns", "capped", "ahead", "held_back"):
            shard.turns[kind, key_id] = value
        elif kind == "undelivered":
            shard.undelivered[key_id] = {step: orjson.loads(delivery) for step, delivery in value.items()}
        elif kind == "fair":
            assert ttl == -1, f"{text} has a TTL"
        elif kind == "due":
            shard.due = value
        elif kind == "lacking":
            shard.lacking = set(value)
        elif kind == "held":
            shard.held = set(value)
        elif kind == "meters":
            shard.meters = {meter: float(value[meter]) for meter in value if meter != "after"}
        elif kind == "caps":
            shard.caps = {cap: int(number) for cap, number in value.items()}
        elif kind in ("waiting", "pending"):
            getattr(shard, kind)[key_id] = value
        elif kind == "counts":
            shard.counts = {series: int(number) for series, number in value.items()}
        elif kind == "usage":
            assert ttl > 0, f"{text} has no TTL"
            for cell, number in value.items():
                shard.usage[cell.partition(" ")[0]] += int(number)
        elif kind == "journal":
            assert ttl == -1, f"{text} has a TTL"
            shard.journal = [entry["line"] for entry in value]
        elif kind == "statistics":
            assert ttl > 0, f"{text} has no TTL"
            shard.statistics[owner] = value
        elif kind == "runs":
            shard.listed[key_id] = value
        elif kind == "spans":
            assert ttl > 0, f"{text} has no TTL"
            shard.spans = value
        elif kind == "trace":
            shard.traced.add(key_id)
        elif kind == "convs":
            setattr(shard, key_id or "begun", value)
        elif kind == "ended":
            shard.ended = value
        elif any(kind in kinds for kinds in brought_to_tests("SHARD_KINDS").values()):
            shard.of_features[kind] = value
        else:
            raise AssertionError(f"{text} is a key that nobody knows")
    for shard in shards.values():
        _join_lists(shard)
    return shards


async def _everything(redis: Any) -> list[tuple[str, int, Any]]:
    """The name, the TTL and the value of all keys, asked for together: one by one, a third of all that a test of the
    contract computes would be this."""
    names = [name.decode() async for name in redis.scan_iter(count=1000)]
    pipe = redis.pipeline(transaction=False)
    for name in names:
        pipe.pttl(name).type(name)
    told = await pipe.execute()
    # What is gone since it was listed has no type.
    there = [
        (name, ttl, kind.decode())
        for name, ttl, kind in zip(names, told[::2], told[1::2], strict=True)
        if kind != b"none"
    ]
    for name, _, kind in there:
        _READ[kind](pipe, name)
    values = await pipe.execute()
    return [
        (name, ttl, _decoded(kind, value))
        for (name, ttl, kind), value in zip(there, values, strict=True)
        # Redis has none without members: it is gone since its type was read.
        if value or kind not in ("hash", "zset")
    ]


_READ: Mapping[str, Callable[[Any, str], object]] = {
    "hash": lambda pipe, name: pipe.hgetall(name),
    "list": lambda pipe, name: pipe.llen(name),
    "set": lambda pipe, name: pipe.scard(name),
    "stream": lambda pipe, name: pipe.xrange(name),
    "string": lambda pipe, name: pipe.get(name),
    "zset": lambda pipe, name: pipe.zrange(name, 0, -1, withscores=True),
}
"""How a value of each type is read; of those that no key of the store is of, how large it is."""


def _decoded(kind: str, value: Any) -> Any:
    match kind:
        case "hash":
            return _text(value)
        case "stream":
            return [{"id": entry.decode(), **_text(fields)} for entry, fields in value]
        case "zset":
            return {member.decode(): score for member, score in value}
        case _:
            return value


def _text(fields: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in fields.items()}


def _join_lists(shard: Shard) -> None:
    """Check that each tenant's lists have its own, and those of all together the same; and add these to the default
    tenant's."""
    lists = {f"runs:{name}" if name else "runs": members for name, members in shard.listed.items()}
    lists |= {"convs": shard.begun, "convs:updated": shard.updated}
    for name, members in lists.items():
        assert all(keys.owners_of(each) == (keys.DEFAULT_TENANT,) for each in members), f"{name}: somebody else's"
    together: dict[str, dict[str, float]] = {}
    for owner, named in shard.owned.items():
        for name, members in named.items():
            assert all(owner in keys.owners_of(each) for each in members), f"{owner}{name}: somebody else's"
            if owner != keys.OTHER_TENANTS:
                together.setdefault(name, {}).update(members)
    assert shard.owned.get(keys.OTHER_TENANTS, {}) == together, "the lists of all other tenants"
    for name, members in together.items():
        kind, _, which = name.partition(":")
        into = shard.listed.setdefault(which, {}) if kind == "runs" else getattr(shard, which or "begun")
        into.update(members)


def _check_run(shard: Shard, run_id: str, max_losses: int) -> None:
    run, steps = shard.runs[run_id], shard.steps.get(run_id, {})
    status, conversation = run["status"], shard.conversations[run["conversation"]]
    said = f"{run_id} is {status}: "
    lists = {each for each, runs in shard.listed.items() if run_id in runs}
    assert lists == {"", status}, said + f"it is in the lists {sorted(lists)}"
    assert shard.listed[status][run_id] == shard.listed[""][run_id], said + "it has two places"
    assert int(run["seq"]) <= int(run["max_steps"]), said + "too many steps"
    _check_feed(shard, run_id, said)
    if status not in OPEN:
        assert StopReason(run["stop_reason"]).status == status, said + run["stop_reason"]
        assert (status == RunStatus.FAILED) == ("error" in run), said + "an error belongs to failed runs"
        for forbidden in ("waiting", "open", "actions", "pausing"):
            assert forbidden not in run, said + f"it still has {forbidden}"
        assert ("input" in run) == ("entered" not in run), said + "what it was to say is in the log or kept"
        assert "entered" not in run or "steer" not in run, said + "what was said into it is not in the log"
        assert not steps, said + "it still has steps"
        assert run_id not in shard.traced, said + "its trace was not told"
        told = [each for each in shard.spans if each.get("run", "").startswith(f"{run_id}\n")]
        assert len(told) == ("trace" in run), said + f"its trace was told {len(told)} times"
        assert f"run:{run_id}" not in shard.lasting, said + "no TTL"
        assert shard.ended[run_id] > float(run["ended_at"]), said + "the list of runs keeps it for ever"
        assert f"feed:{run_id}" not in shard.lasting, said + "no TTL on its feed"
        assert conversation.get("active") != run_id, said + "it still has the turn"
        return
    assert f"run:{run_id}" in shard.lasting, said + "it may expire before it ends"
    assert run_id not in shard.ended, said + "the list of runs loses it"
    assert "ended_at" not in run, said + "it has an end"
    ends, expected = shard.due.get(f"{run_id}/end"), _looked_at(run)
    assert ends in expected, said + f"its time is looked at at {ends}, and should be at {expected}"
    _check_steps(shard, run_id, steps, max_losses, said)
    queued = conversation.get("queued", "").split()
    starts = f"{run_id}/start" in shard.due
    assert ("input" in run) == ("entered" not in run), said + "its input is in the log or kept"
    if steps:
        assert conversation.get("active") == run_id, said + "it works without having the turn"
        assert "entered" in run, said + "its input is not in the log"
        assert not starts, said + "it would start again"
        assert run_id not in queued, said + "it still queues"
        if status == RunStatus.CANCELLING:
            assert any(step["state"] == "leased" for step in steps.values()), said + "nobody has to let go"
    elif status == RunStatus.PAUSED and "entered" in run:
        assert conversation.get("active") == run_id, said + "it has lost its turn"
    else:
        assert status in (RunStatus.QUEUED, RunStatus.PAUSED), said + "nobody works on it"
        assert "input" in run, said + "its input is lost"
        if conversation.get("active") == run_id:
            assert starts, said + "it has the turn and nobody starts it"
        else:
            assert starts != (run_id in queued), said + "it must either be scheduled or queue"


def _looked_at(run: dict[str, str]) -> set[float]:
    """When the due index must have a look at the run's time: at 80 % of what it has, once, and then at the end."""
    begin, warned = max(float(run["created_at"]), float(run["start_after"] or 0)), run.get("warned", "")
    clocks = {"deadline": (begin, float(run["deadline"]))}
    if "started_at" not in run and run["start_by"]:
        clocks["start_by"] = (float(run["start_by"]), float(run["start_by"]))
    seconds = orjson.loads(run.get("budget", "{}")).get("seconds")
    if seconds and "started_at" in run:
        started = float(run["started_at"])
        clocks["seconds"] = (started, started + math.ceil(1000 * seconds))
    early = {at if what in warned else math.ceil(since + 0.8 * (at - since)) for what, (since, at) in clocks.items()}
    # A run that is being cancelled is not warned any more.
    late = {at for _, at in clocks.values()} if run["status"] == RunStatus.CANCELLING else early
    return {min(early), min(late)}


def _check_steps(shard: Shard, run_id: str, steps: dict[str, dict[str, Any]], max_losses: int, said: str) -> None:
    run = shard.runs[run_id]
    calls = [call["id"] for call in orjson.loads(run.get("open", "[]"))]
    for name, step in steps.items():
        member, what = f"{run_id}/{name}", f"{said}step {name} is {step['state']}: "
        seq, _, call_id = name.partition("/")
        assert seq == run["seq"], what + f"the run is at {run['seq']}"
        assert (member in shard.due) == (step["state"] in ("leased", "later", "awaiting")), what + "due index"
        assert member not in shard.ready[step["queue"]] or step["state"] == "ready", what + "ready index"
        assert step.get("blamed", 0) < max_losses, what + "too many losses"
        assert step.get("blamed", 0) <= step["losses"], what + "blamed for more than there was"
        assert step["state"] == "ready" or "unattended" not in step, what + "it is in no queue"
        assert step["state"] == "leased" or "judgement" not in step, what + "judged for a loss that is over"
        assert bool(call_id) == ("call" in step), what + "kind"
        called = orjson.loads(step["call"])["name"] if "call" in step else ""
        of_agent, of_server = called.startswith("agent_"), "__" in called
        assert (step["queue"] == "model") == (not call_id or of_agent) or of_server, what + "queue"
        if call_id and run["status"] != RunStatus.CANCELLING:
            assert call_id in calls, what + "its call is answered"
        if step["state"] == "leased":
            assert step["fence"] <= int(run["fence"]), what + "fence"
            assert step["worker"], what + "held by nobody"
            assert "first" in step, what + "held and not begun"
        else:
            assert not step.keys() & {"fence", "worker", "nonce"} or step["state"] == "aborted", what + "held"
        if run["status"] == RunStatus.CANCELLING:
            assert step["state"] in ("leased", "aborted"), what + "it would be begun"
        else:
            assert step["state"] != "aborted", what + "nobody goes on with it"
        if step["state"] in ("later", "awaiting"):
            assert shard.due[member] == step["until"], what + "due at another time"
    _check_rest(run, steps, said)
    fences = [step["fence"] for step in steps.values() if step["state"] == "leased"]
    assert len(fences) == len(set(fences)), said + "two leases with one fence"
    if steps and run["status"] != RunStatus.CANCELLING:
        named = [name.partition("/")[2] for name in steps if "/" in name]
        assert sorted(named) == sorted(calls), said + f"open calls {calls}, steps for {named}"
    waiting = orjson.loads(run.get("waiting", "null"))
    if waiting and waiting["reason"] in ("backoff", "provider_cooldown"):
        assert {step["state"] for step in steps.values()} <= {"later", "ready", "awaiting"}, said + "it is worked on"


def _check_rest(run: dict[str, str], steps: dict[str, dict[str, Any]], said: str) -> None:
    """What a run that waits for somebody waits for, and what one that is paused keeps."""
    status, states = run["status"], {step["state"] for step in steps.values()}
    actions = orjson.loads(run.get("actions", "[]"))
    held = {step["action"] for step in steps.values() if step["state"] == "awaiting"}
    assert sorted(held) == sorted(action["id"] for action in actions), said + "pending actions"
    if status == RunStatus.CANCELLING:
        assert not actions, said + "nobody can resolve what waits"
        assert "pausing" not in run, said + "it is to pause, too"
    if status == RunStatus.REQUIRES_ACTION:
        assert states == {"awaiting"}, said + f"it waits for nobody: {states}"
        assert orjson.loads(run["waiting"])["reason"] in ("approval", "client_tool", "question"), (
            said + "it does not say so"
        )
    elif status == RunStatus.PAUSED:
        assert states <= {"awaiting", "parked"}, said + f"something goes on: {states}"
        assert "pausing" not in run, said + "it is paused already"
        assert "waiting" not in run or "entered" not in run, said + "it waits for something else, too"
    elif "pausing" in run:
        assert "leased" in states, said + "it could be paused"
        assert states <= {"leased", "awaiting", "parked"}, said + f"something would begin: {states}"
    elif status != RunStatus.CANCELLING:
        assert "parked" not in states, said + "it is not paused"
        assert states != {"awaiting"}, said + "it waits for an action"


@cache
def _check_declared(kind: str, data: str) -> None:
    for event in from_channel("run", f"9 0 {kind} {data}".encode()):
        declared(event)


def _check_feed(shard: Shard, run_id: str, said: str) -> None:
    run, feed = shard.runs[run_id], shard.feeds.get(run_id)
    logged = [entry for entry in shard.logs[run["conversation"]] if entry["run"] == run_id]
    for entry in (*logged, *(feed or ())):
        _check_declared(entry["type"], entry["data"])
    assert DURABLE.issuperset(entry["type"] for entry in logged), said + "something fleeting is in the log"
    seqs = [int(entry["seq"]) for entry in logged]
    assert seqs == sorted(set(seqs)), said + "log entries out of order"
    kinds = [entry["type"] for entry in logged]
    _check_actions(run, logged, said)
    assert kinds[0] == "run.created", said + "it was not created"
    assert kinds.count("run.finished") == (run["status"] not in OPEN), said + "it must finish once"
    if run["status"] not in OPEN:
        assert seqs[-1] == int(run["events"]), said + "something came after the end"
        assert kinds[-1] == "run.finished", said + "something came after the end"
    if feed is None:
        return
    ids = [seq for entry in feed for seq in _numbers(entry)]
    assert ids == list(range(ids[0], int(run["events"]) + 1)), said + "a gap in the feed"
    shown = {int(entry["id"].partition("-")[0]): (entry["type"], entry["data"], entry["at"]) for entry in feed}
    for entry in logged:
        if int(entry["seq"]) >= ids[0]:
            expected = (entry["type"], entry["data"], entry["at"])
            assert shown[int(entry["seq"])] == expected, said + "feed and log differ"


def _numbers(entry: dict[str, Any]) -> range:
    """Of the events that an entry of a feed stands for."""
    last, _, _ = entry["id"].partition("-")
    _, before = orjson.loads(entry["data"]).get("deltas", (1, 0))
    return range(int(last) - before, int(last) + 1)


def _check_actions(run: dict[str, str], logged: list[dict[str, Any]], said: str) -> None:
    """Each action was resolved once, and before its call had a result; those that are left are the pending ones."""
    pending: dict[str, str] = {}
    for entry in logged:
        data = orjson.loads(entry["data"])
        if entry["type"] == "action.required":
            pending[data["action"]["id"]] = data["action"]["call_id"]
        elif entry["type"] == "action.resolved":
            assert pending.pop(data["action_id"], None) == data["call_id"], said + f"resolved twice: {data}"
        elif entry["type"] == "tool.finished":
            assert data["message"]["call_id"] not in pending.values(), said + f"a result and a pending action: {data}"
        elif entry["type"] == "run.requires_action":
            assert sorted(data["pending_actions"]) == sorted(pending), said + f"it waits for {pending}, not {data}"
    assert sorted(pending) == sorted(action["id"] for action in orjson.loads(run.get("actions", "[]"))), (
        said + "actions"
    )


def _check_conversation(shard: Shard, conversation_id: str, *, whole: bool) -> None:
    """``whole``: no run of it was deleted."""
    conversation, log = shard.conversations[conversation_id], shard.logs.get(conversation_id, [])
    unfinished, said = shard.unfinished(conversation_id), f"{conversation_id}: "
    listed = {name: getattr(shard, name).get(conversation_id) for name in ("begun", "updated", "expiring")}
    assert conversation["id"] == conversation_id, said + "its id"
    assert listed["begun"] == float(conversation["created_at"]), said + "its place by creation"
    assert listed["updated"] == float(conversation["updated_at"]), said + "its place by the last change"
    assert (listed["expiring"] is None) == bool(unfinished), said + "the lists would keep or lose it"
    active, queued = conversation.get("active"), conversation.get("queued", "").split()
    assert int(conversation.get("unfinished", 0)) == len(unfinished), said + "count of unfinished runs"
    for key in (f"conv:{conversation_id}", *([f"log:{conversation_id}"] if log else [])):
        assert (key in shard.lasting) == bool(unfinished), said + f"TTL of {key} with {unfinished}"
    assert len(queued) == len(set(queued)), said + "a run queues twice"
    assert set(queued) <= set(unfinished), said + "a finished run queues"
    assert active not in queued, said + "the active run queues"
    assert active in unfinished if active else not queued, said + "nobody has the turn"
    positions, length = [_number(entry) for entry in log], int(conversation.get("entries", 0))
    if whole:
        assert positions == list(range(1, length + 1)), said + "gaps in the log"
    assert positions == sorted({each for each in positions if each <= length}), said + "entries out of order"
    ends = [entry["run"] for entry in log if entry["type"] == "run.finished" and _own(shard, conversation_id, entry)]
    outcome = orjson.loads(conversation.get("last_outcome", "null"))
    gone_back = '""]' in conversation.get("withdrawn", "")
    if ends and (outcome or (whole and not gone_back)):
        assert outcome["run_id"] == ends[-1], said + "last outcome"
    _check_usage(shard, conversation_id, said, whole=whole)
    _check_withdrawn(shard, conversation_id, log, said)
    left = _unanswered(log, said)
    assert (
        left == [call["id"] for call in orjson.loads(shard.runs[active].get("open", "[]"))] if active else not left
    ), said + f"calls without a result: {left}"


def _check_usage(shard: Shard, conversation_id: str, said: str, *, whole: bool) -> None:
    """A conversation has what its ended runs used, each once."""
    runs = [run for run in shard.runs.values() if run["conversation"] == conversation_id]
    ended = [run for run in runs if run["status"] not in OPEN]
    for name in USAGE_FIELDS:
        counted = int(shard.conversations[conversation_id].get(name, 0))
        used = [int(run.get(name, 0)) for run in ended]
        total = max(used, default=0) if name == "unpriced" else sum(used)
        assert counted == total if whole else counted >= total, said + f"{name} is {counted}, its runs have {used}"


def _check_withdrawn(shard: Shard, conversation_id: str, log: list[dict[str, Any]], said: str) -> None:
    """What models are not told of any more are whole runs, those that were rolled back and no others."""
    parts = orjson.loads(shard.conversations[conversation_id].get("withdrawn", "[]"))
    messages = [entry for entry in log if entry["type"] in MESSAGES]
    for first, last, run_id in parts:
        if run_id in shard.runs:
            of = {entry["run"] for entry in messages if first <= _number(entry) <= last}
            assert of <= {run_id}, said + f"{of} said something in the part of {run_id}"
            assert "withdrawn" in shard.runs[run_id], said + f"{run_id} was not rolled back"
    for entry in messages:
        if _own(shard, conversation_id, entry):
            inside = any(first <= _number(entry) <= last and of == entry["run"] for first, last, of in parts)
            assert inside == ("withdrawn" in shard.runs[entry["run"]]), said + f"{entry['run']}: withdrawn in part"


def _own(shard: Shard, conversation_id: str, entry: dict[str, Any]) -> bool:
    """Whether the run of an entry is one of this conversation: a fork has entries of others."""
    return shard.runs.get(entry["run"], {}).get("conversation") == conversation_id


def _number(entry: dict[str, Any]) -> int:
    return int(entry["id"].partition("-")[0])


def _unanswered(log: list[dict[str, Any]], said: str) -> list[str]:
    """The calls at the end of the log that have no result yet; every earlier one has exactly one."""
    pending: list[str] = []
    turns = [e for e in log if e["type"] in ("message.created", "tool.finished")]
    for entry, newest in itertools.zip_longest(turns, turns[1:]):
        message = orjson.loads(entry["data"])["message"]
        if message["role"] == "tool":
            assert message["call_id"] in pending, said + f"a result for {message['call_id']}, open: {pending}"
            pending.remove(message["call_id"])
        else:
            assert not pending, said + f"a message before the results of {pending}"
            pending = [call["id"] for call in message.get("tool_calls", ())]
        assert newest is None or newest["run"] == entry["run"] or not pending, said + "a run left calls open"
    return pending


def _check_indexes(shard: Shard) -> None:
    lacking = {
        f"{step['code']} {run_id}/{name}"
        for run_id, steps in shard.steps.items()
        for name, step in steps.items()
        if step["state"] == "later" and step.get("postponed") == step["until"] and step["reason"] == "no_worker"
    }
    lacking |= {
        f"queue:{step['queue']} {run_id}/{name}"
        for run_id, steps in shard.steps.items()
        for name, step in steps.items()
        if "unattended" in step
    }
    assert shard.lacking == lacking, "what waits for a worker that has what it needs"
    for name in ("begun", "updated", "expiring"):
        # Redis may have let one go whose retention is over before a sweeper came.
        gone = {each for each in getattr(shard, name) if each not in shard.conversations}
        assert gone <= shard.expiring.keys(), f"conversations that are gone are {name}: {gone}"
    for member in (*shard.due, *(member for ready in shard.ready.values() for member in ready)):
        run_id, _, what = member.partition("/")
        assert run_id in shard.runs, f"{member} is due and its run is gone"
        assert shard.runs[run_id]["status"] in OPEN, f"{member} is due and its run has ended"
        assert what in ("start", "end", "parent") or what in shard.steps.get(run_id, {}), f"{member}: no such step"
