"""What a worker lacks goes to another one, until nobody has had it for an hour."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.config.providers import Provider
from palaver.errors import ConfigurationError, NoWorker
from palaver.operations import catalog
from palaver.schemas.models import AgentSpec, ToolCall
from palaver.steps.leases import Lease, LogTail
from palaver.steps.verdicts import Postpone
from palaver.store.fleet.fleet import KNOWN_FOR, WorkerReport
from palaver.store.redis import fleet_keys, single_flight
from palaver.tools import ToolSet
from palaver.vocabulary.lifecycle import WaitReason
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import MODEL, TOOL
from tests.process.remote_tools import RemoteTools, Server
from tests.unit.api_world import World, world
from tests.waiting import aeventually
from workers.sources import Elsewhere, Toolbox
from workers.steps.capabilities import Capabilities, offered_again, require_provider
from workers.steps.declared_tools import DeclaredTools

URL = "http://127.0.0.1:1/v1"
TABLE = {
    "open": Provider(base_url=URL),
    "keyless": Provider(base_url=URL, api_key_env="KEYLESS_KEY"),
}


@pytest.fixture
def capabilities(monkeypatch: pytest.MonkeyPatch) -> Capabilities:
    """Of a worker that has the key of one provider of two, and the tools of the guest's source."""
    monkeypatch.setenv("KEYED_KEY", "secret")
    keyed = Provider(base_url=URL, api_key_env="KEYED_KEY")
    return Capabilities(Toolbox([RemoteTools(Server())]), {**TABLE, "keyed": keyed})


def _agent(provider: str = "open", *tools: str) -> AgentSpec:
    return AgentSpec(model=f"{provider}/m", tools=tools)


def _call(name: str) -> ToolCall:
    return ToolCall(id="c1", name=name, arguments="{}")


def _lease(agent: AgentSpec, call: ToolCall | None, lacking_for: float = 0.0) -> Lease:
    """On a step of the model, or on one that answers the call."""
    kind, step = (MODEL, "1") if call is None else (TOOL, "1/c1")
    log = LogTail()
    return Lease("run", "conv", kind, step, 1, 1, 1, 0.0, 9.0, agent, call, log, lacking_for=lacking_for)


@pytest.mark.parametrize(
    ("agent", "call", "code"),
    [
        (_agent("open", "look_up"), None, None),
        (_agent("keyed"), None, None),
        (_agent("keyless"), None, "key:KEYLESS_KEY"),
        (_agent("other"), None, "provider:other"),
        (_agent("open", "look_up", "gone"), None, "tool:gone"),
        (_agent("open", "look_up", "gone"), _call("gone"), "tool:gone"),
        (_agent("open", "look_up", "gone"), _call("look_up"), None),
        (_agent("other", "look_up"), _call("look_up"), None),
        (_agent("open", "look_up"), _call("made_up"), None),
    ],
    ids=["all here", "key", "no key", "no provider", "no tool", "call", "another call", "no model", "not the agent's"],
)
def test_what_a_worker_lacks_is_named(
    capabilities: Capabilities, agent: AgentSpec, call: ToolCall | None, code: str | None
) -> None:
    lack = capabilities.lacking(_lease(agent, call))
    assert (lack.code if lack else None) == code


def test_a_worker_says_which_keys_it_lacks_and_calls_the_others(capabilities: Capabilities) -> None:
    assert sorted(capabilities.providers) == ["keyed", "open"]
    assert capabilities.lacks == ("key:KEYLESS_KEY",)
    require_provider(TABLE)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "PALAVER_PROVIDERS: a model worker without a provider"),
        ({"keyless": TABLE["keyless"]}, "not set: KEYLESS_KEY"),
    ],
    ids=["no table", "no key"],
)
def test_a_worker_that_can_call_no_provider_is_refused(
    table: dict[str, Provider], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KEYLESS_KEY", raising=False)
    with pytest.raises(ConfigurationError, match=said):
        require_provider(table)


def test_a_step_is_offered_often_at_first_and_rarely_later() -> None:
    waited, offers = 0.0, 0
    while waited < 1:
        waited, offers = waited + offered_again(waited), offers + 1
    assert offers == 9
    assert offered_again(20.0) == 5.0
    assert offered_again(3_000.0) == 15.0


async def _fleet_with(api: World, *, providers: tuple[str, ...] = (), tools: tuple[Any, ...] = ()) -> None:
    told = ToolSet.of(tools)
    await api.store.tools.publish(told, ("tools",))
    await api.store.fleet.report(
        WorkerReport("w", ("model",), 0, 1, draining=False, tools=told.digest, providers=providers)
    )


@pytest.mark.parametrize("lacking_for", [0.0, KNOWN_FOR])
async def test_within_an_hour_the_step_goes_elsewhere(capabilities: Capabilities, lacking_for: float) -> None:
    async with world(tools=()) as api:
        verdict = await capabilities.missing_capability(api.store, _lease(_agent("keyless"), None, lacking_for))
        assert verdict == Postpone(offered_again(lacking_for), "key:KEYLESS_KEY", WaitReason.NO_WORKER)
        assert await capabilities.missing_capability(api.store, _lease(_agent("keyed"), None, lacking_for)) is None


@pytest.mark.parametrize(
    ("agent", "call", "said"),
    [
        (_agent("keyless"), None, "the key of the provider 'keyless', in the variable KEYLESS_KEY"),
        (_agent("other"), None, "the provider 'other', by an entry in its PALAVER_PROVIDERS"),
        (_agent("open", "look_up", "gone"), _call("gone"), "the tool 'gone'"),
    ],
    ids=["key", "provider", "tool"],
)
async def test_after_an_hour_it_fails_unless_somebody_has_it(
    capabilities: Capabilities, agent: AgentSpec, call: ToolCall | None, said: str
) -> None:
    async with world(tools=()) as api:
        with pytest.raises(NoWorker, match=f"for an hour no worker has had {said}"):
            await capabilities.missing_capability(api.store, _lease(agent, call, KNOWN_FOR + 1))
        gone = Server.offers[0].model_copy(update={"name": "gone"})
        await _fleet_with(api, providers=("keyless", "other"), tools=(gone,))
        assert await capabilities.missing_capability(api.store, _lease(agent, call, KNOWN_FOR + 1)) is not None


async def test_it_fails_after_four_hours_even_if_somebody_has_it_who_cannot_do_the_step(
    capabilities: Capabilities,
) -> None:
    """Workers of the other queue, or one that lacks something else that the step needs."""
    gone = Server.offers[0].model_copy(update={"name": "gone"})
    agent, told = _agent("open", "gone"), limit_of("no_worker_told")
    async with world(tools=()) as api:
        await _fleet_with(api, tools=(gone,))
        assert await capabilities.missing_capability(api.store, _lease(agent, None, told)) is not None
        with pytest.raises(NoWorker, match=r"for four hours .* lacks the tool 'gone'"):
            await capabilities.missing_capability(api.store, _lease(agent, None, told + 1))


async def test_an_older_worker_that_does_not_tell_of_providers_may_have_any(capabilities: Capabilities) -> None:
    async with world(tools=()) as api:
        await _fleet_with(api, providers=("open",))
        await api.redis.hdel(fleet_keys.worker("w"), "providers")
        assert (
            await capabilities.missing_capability(api.store, _lease(_agent("other"), None, KNOWN_FOR + 1)) is not None
        )


@pytest.mark.parametrize("call", [None, _call("gone")], ids=["model", "tool"])
async def test_a_step_waits_on_while_the_store_cannot_say_who_has_it(
    capabilities: Capabilities, call: ToolCall | None
) -> None:
    async with world(tools=()) as api:
        api.server.connected = False
        try:
            verdict = await capabilities.missing_capability(
                api.store, _lease(_agent("open", "gone"), call, KNOWN_FOR + 1)
            )
        finally:
            api.server.connected = True
    assert isinstance(verdict, Postpone)
    assert (verdict.code, verdict.reason) == ("tool:gone", WaitReason.NO_WORKER)


async def test_a_step_that_lacks_a_tool_looks_once_more_before_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a worker with a new tool has just begun."""
    monkeypatch.setattr(single_flight, "_AGAIN", 0.0)
    gone = Server.offers[0].model_copy(update={"name": "gone"})
    toolbox = Toolbox([], elsewhere=Elsewhere())
    capabilities = Capabilities(toolbox, TABLE)
    async with world(tools=()) as api:
        assert toolbox.elsewhere is not None
        capabilities.declared = DeclaredTools(api.store, toolbox, toolbox.elsewhere, frozenset)
        await _fleet_with(api, tools=(Server.offers[1],))
        await capabilities.declared.look()
        agent = _agent("open", "gone")
        verdict = await capabilities.missing_capability(api.store, _lease(agent, None, 0.0))
        assert verdict == Postpone(offered_again(0.0), "tool:gone", WaitReason.NO_WORKER)
        lacked = await capabilities.missing_capability(api.store, _lease(agent, _call("gone"), 600.0))
        assert lacked == Postpone(15.0, "tool:gone", WaitReason.NO_WORKER)
        await _fleet_with(api, tools=(gone,))
        assert await capabilities.missing_capability(api.store, _lease(agent, None, 0.0)) is None
        # Its call is for the worker that has it, and this one may be the first to take it, again and again.
        known = await capabilities.missing_capability(api.store, _lease(agent, _call("gone"), 600.0))
        assert known == Postpone(1.0, "tool:gone", WaitReason.NO_WORKER)
        api.server.connected = False
        verdict = await capabilities.missing_capability(api.store, _lease(_agent("open", "other"), None, 0.0))
        api.server.connected = True
        assert isinstance(verdict, Postpone)
        await capabilities.declared.close()


@pytest.mark.parametrize("what", ["provider", "tool"])
async def test_what_a_worker_brings_that_has_just_begun_is_taken_at_once(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The API looks again before it refuses what it has not heard of."""
    monkeypatch.setattr(catalog, "_LASTS", 1e6)
    brought = Server.offers[0].model_copy(update={"name": "brought"})
    body = {"agent": {"model": "fake/echo", "tools": ["brought"] if what == "tool" else []}, "input": "hello"}
    async with world() as api:
        await _fleet_with(api, providers=("other",) if what == "provider" else ("fake",))
        assert (await api.client.post("/v1/runs", json=body)).status_code == 422
        await _fleet_with(api, providers=("fake",), tools=(brought,))

        async def taken() -> bool:
            return (await api.client.post("/v1/runs", json=body)).status_code == 202

        await aeventually(taken)
