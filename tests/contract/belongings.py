"""A tenant that has something of every kind, and a search for it in all that is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from palaver.feature import hash_tags
from palaver.schemas.actions import ActionType
from palaver.schemas.conversation import NewConversation
from palaver.schemas.models import AgentSpec, Message, Usage
from palaver.schemas.tenants import CapsChange
from palaver.steps.verdicts import Finish, Postpone
from palaver.store import Store
from palaver.store.access.api_keys import KeyGrant
from palaver.store.redis import access_keys, agent_keys, fleet_keys, keys, provider_keys, told_keys
from palaver.store.redis.reach import Reach, within
from palaver.store.tenants.tenants import Tenant
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason
from palaver.vocabulary.scopes import SCOPES
from palaver.vocabulary.step_kinds import QUEUES
from tests.contract.store_driver import AGENT, OWN, StoreDriver
from tests.feature_cases import brought_to_tests, modules_of_keys

OTHERS: Final = frozenset(
    {
        *("{p00}:sender", "{p00}:counts", "{p00}:generation", "{p00}:rewound", "{p00}:promised"),
        *("palaver:worker:<id>", "palaver:workers", "palaver:worker-tools:<digest>", "palaver:worker-tools"),
        *("{palaver:workers}:sweepers", "{palaver:workers}:busy", "{palaver:workers}:planning"),
        "{palaver:workers}:features",
        *("palaver:worker-providers", "palaver:worker-queues", "palaver:cancel:<worker>", "palaver:providers"),
        *(f"{tag}:counts" for tag in hash_tags()),
        *("{palaver:keys}:signing", "{palaver:keys}:version"),
    }
)
"""Kinds of keys that have nothing of one tenant."""
LINES: Final = "{palaver:provider:<name>}:"
"""The beginning of the kinds that have ids of steps in line, for ten minutes at most."""
OF_ERASURE: Final = frozenset(
    {
        *("palaver:tenants", "{p00}:erased", "{p00}:<owner>erasure", "{palaver:agents}:erasure"),
        *(f"{tag}:erasure:<tag>" for tag in (*hash_tags(), "{palaver:keys}")),
        *("{palaver:audit}:erasure:<tag>", "{palaver:audit}:receipt:<name>"),
    }
)
"""Kinds that say that a tenant was erased, or how far that is."""


_DOCUMENTED: Final = (
    *(keys, fleet_keys, provider_keys, access_keys, told_keys),
    agent_keys,
    *modules_of_keys(),
)


def kinds() -> set[str]:
    """The kinds of keys that there are, as the modules that name them document them."""
    texts = "\n".join(module.__doc__ or "" for module in _DOCUMENTED)
    return set(re.findall(r"^(\{(?:p00|palaver:\S*)\}:\S+|palaver:\S+)\s", texts, re.MULTILINE))


_PARTS: Final[Mapping[str, Sequence[str]]] = {
    "<owner>": (keys.OTHER_TENANTS,),
    "<status>": tuple(RunStatus),
    "<queue>": (*QUEUES, OWN),
    "<reason>": tuple(WaitReason),
    "<type>": get_args(ActionType),
}
"""The parts of the names of lists that all tenants share."""


def shared_lists() -> set[str]:
    """The sorted sets of a shard in which all tenants are, or all but the default one."""
    texts = "\n".join(module.__doc__ or "" for module in (keys, *modules_of_keys()))
    documented = re.findall(r"^(\{p00\}:\S+) +zset", texts, re.MULTILINE)
    lists = {*documented} - OF_ERASURE - {"{p00}:left:<id>", "{p00}:<owner>passing"}
    lists -= {"{p00}:<owner>in_flight", "{p00}:<owner>capped_in", "{p00}:<owner>backlog:<queue>"}
    for part, names in _PARTS.items():
        lists = {each.replace(part, name) for each in lists for name in names}
    assert not [each for each in lists if "<" in each], "a part that is not above"
    return lists


def pattern_of(kind: str, tag: str) -> re.Pattern[str]:
    """What matches the keys of a kind."""
    text = re.escape(kind).replace("{palaver:agents\\}", f"{{palaver:agents:{tag}\\}}").replace("<owner>", f"@{tag}:")
    text = text.replace(re.escape("{palaver:agents}"), re.escape(f"{{palaver:agents:{tag}}}"))
    return re.compile(re.sub(r"<\w+>", "[^:]+", text))


async def endow(store: Store, driver: StoreDriver, tenant: Tenant) -> None:
    """Let a tenant have something of each kind that a tenant can have, with some of it under way."""
    words = f"words-of-{tenant.name}"
    for prepare in brought_to_tests("prepare").values():
        await prepare(store, tenant.tag, words)
    reach, agent = Reach(tenant.tag), AGENT.model_copy(update={"instructions": words})
    with within(reach):
        ended = await driver.submit(words, agent=agent, idempotency_key=f"key-of-{tenant.name}", tags=(words,))
        lease = await driver.claim(ended.deliveries[0])
        usage, answer = Usage(input_tokens=7, output_tokens=4, model_calls=1), Message(role="assistant", content=words)
        await store.steps.settle(lease, Finish(answer, StopReason.END_TURN, usage=usage))
        conversation = lease.conversation_id
        await store.vault.keep(conversation, {"TOKEN": words})
        await store.conversations.leave_position(conversation, "dialect", 1, lasts=60)
        await store.runs.copy(conversation, through=2, made_anew=None, agent=None)
        await store.conversations.begin(NewConversation(title=words))
        # Steps in every state: awaited, delivered to each queue, leased, and one that lacks a worker.
        await driver.turn("c1", "c2", approval=("c1",), client=("c2",))
        await driver.turn("c3", "c4")
        # Others are in a queue that a tool names, and that no worker takes from.
        await store.queues.publish((OWN,))
        await driver.turn("c5", "c6", queue=OWN)
        await driver.submit(words, agent=agent)
        _, held = await driver.begin(input=words, agent=agent)
        await driver.submit(words, conversation_id=held.conversation_id, on_conflict="enqueue")
        _, lacking = await driver.begin(input=words, agent=agent)
        await store.steps.settle(lacking, Postpone(2.0, "tool:look_up", WaitReason.NO_WORKER))
        # What happened until now, and not what happens next.
        for take_note in brought_to_tests("take_note").values():
            await take_note(store, tenant.tag)
        _, last = await driver.begin(input=words, agent=agent)
        await driver.finish(last)
        await _wait_for_caps(store, driver, tenant.tag)
        for name in ("support", "removed"):
            await store.agents.keep(tenant.tag, name, AgentSpec(model="fake/echo", instructions=words))
        await store.agents.remove(tenant.tag, "removed")
        for endow_more in brought_to_tests("endow").values():
            await endow_more(store, tenant.tag, words)
        made = await store.api_keys.create(KeyGrant(words, tenant.tag, tenant.name, frozenset(SCOPES)))
        await store.api_keys.note_use({made.record.id: 1})
        await store.audit.add(tenant.tag, "create_key", key=words, facts={"run": ended.run_id})
    # A sweeper sees what is of any tenant.
    await store.due.attend(OWN, attended=False, ready_for=-60)


async def _wait_for_caps(store: Store, driver: StoreDriver, tag: str) -> None:
    """Let a step wait for a cap in money, and others for one of what is in flight, of which one has its turn."""
    await store.caps.change(tag, CapsChange(usd_per_day=1))
    _, lease = await driver.begin()
    wait = await store.caps.reserve(lease, 1, spent=0.0, least=2.0, most=2.0, tokens=1)
    assert wait is not None
    await store.steps.settle(lease, Postpone(wait.seconds, wait.code, WaitReason.TENANT_LIMIT))
    await store.caps.change(tag, CapsChange(max_in_flight=1))
    assert not (await driver.submit()).deliveries
    await store.caps.change(tag, CapsChange(max_in_flight=1000))
    (due,) = [each for each in await store.due.fill() if each.queue == "model"]
    await driver.finish(await driver.claim(due))
    await store.caps.change(tag, CapsChange(max_in_flight=1))
    assert not (await driver.submit()).deliveries


async def content_of(redis: Any, name: str) -> dict[str, Any]:
    """All that a key has, each part under the name that it has there."""
    match (await redis.type(name)).decode():
        case "string":
            return {"": await redis.get(name)}
        case "hash":
            return _text(await redis.hgetall(name))
        case "zset":
            return _text(dict(await redis.zrange(name, 0, -1, withscores=True)))
        case "stream":
            return {each.decode(): repr(fields) for each, fields in await redis.xrange(name)}
        case other:
            raise AssertionError(f"{name} is a {other}, which the search cannot read")


def _text(fields: Mapping[bytes, Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in fields.items()}


async def everything(redis: Any) -> dict[str, dict[str, Any]]:
    """All that is stored."""
    names = sorted([name.decode() async for name in redis.scan_iter(count=1000)])
    return {name: await content_of(redis, name) for name in names}


def found(stored: Mapping[str, Mapping[str, Any]], *words: str) -> set[str]:
    """The places where one of these words is, in the name of a key, of a part of it, or in what is there."""
    places = set()
    for name, content in stored.items():
        for part, value in content.items():
            text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            if any(word in each for each in (name, part, text) for word in words):
                places.add(f"{name} {part}".strip())
    return places


def without(stored: Mapping[str, Mapping[str, Any]], *words: str) -> dict[str, dict[str, Any]]:
    """All that is stored, but for what has one of these words, and for numbers that grow whatever happens."""
    left = {
        name: {part: value for part, value in content.items() if not found({name: {part: value}}, *words)}
        for name, content in stored.items()
        if name not in ("{p00}:counts", access_keys.API_KEYS_VERSION)
    }
    return {name: content for name, content in left.items() if content}
