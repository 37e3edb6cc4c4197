"""A worker whose key a provider refuses leaves the provider to neighbours, if there are any that may do better."""

from __future__ import annotations

import time

import pytest

from palaver.config.providers import Provider
from palaver.schemas.models import AgentSpec
from palaver.steps.leases import Lease, LogTail
from palaver.store.fleet.fleet import WorkerReport
from palaver.vocabulary.lifecycle import WaitReason
from palaver.vocabulary.step_kinds import MODEL
from tests.unit.api_world import World, world
from workers.models.refused_keys import RefusedKeys
from workers.sources import Toolbox
from workers.steps.capabilities import Capabilities

URL = "http://127.0.0.1:1/v1"


@pytest.fixture
def capabilities(monkeypatch: pytest.MonkeyPatch) -> Capabilities:
    monkeypatch.setenv("KEYED_KEY", "secret")
    providers = {"keyed": Provider(base_url=URL, api_key_env="KEYED_KEY"), "open": Provider(base_url=URL)}
    return Capabilities(Toolbox([]), providers)


@pytest.fixture
def refused(capabilities: Capabilities) -> RefusedKeys:
    """Of a worker whose key was just refused."""
    assert capabilities.refused_keys.note_refusal("keyed")
    return capabilities.refused_keys


def lease(provider: str = "keyed", lacking_for: float = 0.0) -> Lease:
    return Lease(
        run_id="run", conversation_id="conv", kind=MODEL, step="1", fence=1, attempt=1, try_number=1, elapsed=0.0,
        time_left=9.0,
        agent=AgentSpec(model=f"{provider}/m"), call=None, log=LogTail(),
        lacking_for=lacking_for,
    )  # fmt: skip


async def report(api: World, worker: str, *providers: str, draining: bool = False) -> None:
    await api.store.fleet.report(WorkerReport(worker, ("model",), 0, 1, draining=draining, providers=providers))


def test_a_refused_key_is_reported_and_the_provider_is_not(capabilities: Capabilities, refused: RefusedKeys) -> None:
    assert [capabilities.provider_names, capabilities.lacks] == [("open",), ("refused_key:keyed",)]
    assert not refused.note_refusal("keyed"), "it is no news"
    refused.note_answer("keyed")
    assert [capabilities.provider_names, capabilities.lacks] == [("keyed", "open"), ()]


def test_it_is_tried_again_after_a_while(
    capabilities: Capabilities, refused: RefusedKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert capabilities.provider_names == ("keyed", "open")
    assert refused.note_refusal("keyed")


async def test_its_steps_go_to_a_neighbour_that_can_call_the_provider(refused: RefusedKeys) -> None:
    async with world(tools=()) as api:
        await report(api, "me", "open")
        await report(api, "other", "keyed")
        verdict = await refused.pass_on(api.store.fleet, "me", lease())
        assert verdict is not None
        assert (verdict.code, verdict.reason) == ("refused_key:keyed", WaitReason.NO_WORKER)
        assert verdict.delay == 0.1
        assert await refused.pass_on(api.store.fleet, "me", lease("open")) is None
        later = await refused.pass_on(api.store.fleet, "me", lease(lacking_for=100))
        assert later is not None
        assert later.delay == 5
        assert await refused.pass_on(api.store.fleet, "me", lease(lacking_for=601)) is None, "for ever"


@pytest.mark.parametrize(("providers", "draining"), [(("open",), False), (("keyed",), True)], ids=["refused", "leaves"])
async def test_where_no_neighbour_can_do_better_the_provider_is_asked(
    refused: RefusedKeys, providers: tuple[str, ...], draining: bool
) -> None:
    async with world(tools=()) as api:
        await report(api, "me", "keyed")
        await report(api, "other", *providers, draining=draining)
        assert await refused.pass_on(api.store.fleet, "me", lease()) is None


def test_a_failure_names_the_worker_and_never_the_key(refused: RefusedKeys) -> None:
    assert refused.named("keyed", "model@host") == "Worker model@host called with the key in KEYED_KEY."
    assert refused.named("open", "model@host") == ""
    assert not refused.note_refusal("inline:somewhere")
