"""What a model is told of a run that its call began: without secrets of that conversation, with names of its tools."""

from __future__ import annotations

import pytest

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure
from palaver.schemas.actions import ClientTool
from palaver.schemas.models import Message, Subagent
from palaver.secrets.redaction import add_names, redaction_scope
from palaver.steps.leases import Settled
from palaver.steps.verdicts import Finish
from palaver.store import Store
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.step_kinds import MODEL
from tests.contract.clock import TurnedDatabase
from tests.contract.test_agent_calls import LEAD, RESEARCHER, Family
from tests.contract.test_vault import NEW, OLD, with_keys
from tests.model_server import ModelServer
from tests.unit.test_one_step import worker
from workers.steps.registry import handler_of
from workers.steps.step import make_attempt

SECRET = "Canary/c1+token~of-a-child"
NAME = "hf_4eC39HqLyjWDarjtT1zdp7dc"
"""It looks like a key."""


class Worker:
    """A model worker in this process, and the store that it works with."""

    def __init__(self, store: Store, driver: Family, settings: Settings) -> None:
        self.store = store
        self.driver = driver
        self._settings = settings

    async def told(self, run_id: str, child_ended: Settled) -> list[tuple[str, str]]:
        """The results of the calls of a run, once the worker has seen that the child of its call has ended."""
        (delivery,) = await self.driver.follow([child_ended])
        async with ModelServer() as model, worker(self.store, self._settings, model) as runtime:
            await make_attempt(handler_of, runtime, MODEL, delivery.run_id, delivery.conversation_id, delivery.step)
        return list(await self.driver.results(run_id))


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> Worker:
    settings = with_keys(Settings(redis_url="redis://127.0.0.1:1/0"), NEW)
    redis = TurnedDatabase().client()
    store = Store(redis, settings)
    monkeypatch.setattr(Store, "connect", lambda *_, **__: store)
    return Worker(store, Family(store, redis), settings)


async def test_a_secret_that_was_set_below_after_the_last_word_there(at_work: Worker) -> None:
    run_id, (child,) = await at_work.driver.waiting()
    said = Message(role="assistant", content=f"it is {SECRET}, or {SECRET.upper()}")
    ended = await at_work.store.steps.settle(child, Finish(said, StopReason.END_TURN))
    await at_work.store.vault.keep(child.conversation_id, {"TOKEN": SECRET})
    assert await at_work.told(run_id, ended) == [("c1", "it is [redacted], or [redacted]")]


async def test_a_secret_in_the_error_of_a_run_below(at_work: Worker) -> None:
    run_id, (child,) = await at_work.driver.waiting()
    ended = await at_work.driver.give_up(child, Failure.of(ErrorClass.INVALID_REQUEST, f"not so: {SECRET}"))
    await at_work.store.vault.keep(child.conversation_id, {"TOKEN": SECRET})
    ((_, told),) = await at_work.told(run_id, ended)
    assert told.endswith("invalid_request: not so: [redacted]")


@pytest.mark.parametrize("of_client", [False, True])
async def test_the_name_of_a_tool_of_an_agent_below_is_no_key(at_work: Worker, of_client: bool) -> None:
    tools = {"client_tools": (ClientTool(name=NAME),)} if of_client else {"tools": (NAME,)}
    below = Subagent(agent=RESEARCHER.model_copy(update=tools))
    lead = LEAD.model_copy(update={"subagents": {"agent_researcher": below}})
    run_id, (child,) = await at_work.driver.waiting(agent=lead)
    with redaction_scope():
        add_names({NAME}.__contains__)
        failure = Failure.of(ErrorClass.INVALID_REQUEST, f"no tool like {NAME}, and not hf_4eC39HqLyjWDarjtT1zdXXXX")
    ((_, told),) = await at_work.told(run_id, await at_work.driver.give_up(child, failure))
    assert told.endswith(f"invalid_request: no tool like {NAME}, and not [redacted]")


async def test_without_the_key_of_what_is_set_below_another_worker_tells(
    at_work: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, (child,) = await at_work.driver.waiting()
    ended = await at_work.driver.end(child)
    await at_work.store.vault.keep(child.conversation_id, {"TOKEN": SECRET})
    poor = Store(at_work.driver.redis, with_keys(Settings(redis_url="redis://127.0.0.1:1/0"), OLD))
    monkeypatch.setattr(Store, "connect", lambda *_, **__: poor)
    assert await at_work.told(run_id, ended) == []
    left = await at_work.driver.step(run_id, "1/c1")
    assert (left["state"], left["reason"], left["code"]) == ("ready", "no_worker", "key:PALAVER_SECRET_KEY")
