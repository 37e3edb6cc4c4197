"""Who asks for a payment does not approve it, by whichever way of the API it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx
import pytest

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure
from palaver.feature import brought
from palaver.processes.tasks import end
from palaver.schemas.models import Message
from palaver.steps.verdicts import Continue, GiveUp
from palaver.tools import tool
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.clock import Clock, TurnedDatabase, turned_clock
from tests.unit.api_world import SETTINGS, World, assert_problem, call, world

NAMES: Final = ("ann", "bob", "cid", "dan")
KEYS: Final = {name: f"{name}-0123456789abcdef" for name in NAMES}
KEYED: Final = SETTINGS.model_copy(
    update={"api_keys": Settings(api_keys=",".join(f"{name}={key}" for name, key in KEYS.items())).api_keys}
)
RULE: Final = {"r": {"approvals": {"require": ["pay"], "approver": "other"}}}
AGENT: Final = {"model": "fake/tool-20", "tools": ["pay"]}
PAY: Final = "pay 777 to ann"
NOON: Final = 1_795_000_000.0


@tool
def pay(amount: int, to: str) -> str:
    """Pay."""
    return f"paid {amount} to {to}"


@dataclass
class Office:
    """An API in which a payment needs a second person, and those who ask it for something."""

    api: World
    clock: Clock
    asking: list[asyncio.Task[httpx.Response]] = field(default_factory=list)
    """Requests whose answers are streams: a client that goes would end the run."""

    async def ask(self, by: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """The answer to a request of one person."""
        headers["Authorization"] = f"Bearer {KEYS[by]}"
        return await self.api.client.request(method, path, json=body, headers=headers)

    async def have(self, by: str, method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """The same, which is to succeed."""
        answer = await self.ask(by, method, path, body, **headers)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found

    async def runs(self, query: str = "") -> list[dict[str, Any]]:
        """The runs, the newest first."""
        found: list[dict[str, Any]] = (await self.have("bob", "GET", f"/v1/runs?limit=100&{query}"))["data"]
        return found

    async def read(self, run: dict[str, Any]) -> dict[str, Any]:
        """The run as it is now."""
        return await self.have("bob", "GET", f"/v1/runs/{run['id']}")

    async def submit(self, by: str, input: Any = "hello", **body: Any) -> dict[str, Any]:
        """A run that one person submitted."""
        if "conversation_id" not in body:
            body.setdefault("agent", AGENT)
        return await self.have(by, "POST", "/v1/runs", {"input": input, **body})

    async def end(self, run: dict[str, Any]) -> None:
        """Let the model end its turn."""
        await self.api.finish(run, lease=await self._lease(run["id"]))

    async def fail(self, run: dict[str, Any]) -> None:
        """Let the run fail."""
        verdict = GiveUp(Failure.of(ErrorClass.AUTHENTICATION), StopReason.ERROR)
        await self.api.store.steps.settle(await self._lease(run["id"]), verdict)

    async def _lease(self, run_id: str) -> Any:
        run = await self.have("bob", "GET", f"/v1/runs/{run_id}")
        step = str(run["step"] or 1)
        return await self.api.store.steps.claim(
            run_id, run["conversation_id"], step, queues=("model",), worker="w-1", nonce="n", known=0
        )

    async def pay(self, run: dict[str, Any]) -> str:
        """Let the model ask for the payment: the run's id."""
        waits = replace(call("c1", "approval"), second_person=True)
        asked = Message(role="assistant", tool_calls=(waits.call,))
        await self.api.store.steps.settle(await self._lease(run["id"]), Continue(asked, calls=(waits,)))
        return str(run["id"])

    async def check(self, run_id: str, *, none_of: str, but: str) -> None:
        """See that the first ones do not approve what waits, and the last one does."""
        path, item = f"/v1/runs/{run_id}/input", {"type": "approval", "action_id": "all", "decision": "approve"}
        for name in none_of.split():
            assert_problem(await self.ask(name, "POST", path, {"items": [item]}), 403, "second_person_required")
        await self.have(but, "POST", path, {"items": [item]})

    async def look(self) -> None:
        """Let time pass, and batches and schedules go on."""
        self.clock.now += 5
        for planned in brought("planned"):
            await planned(self.api.app.state.backend).look()

    async def batch(self, by: str, **body: Any) -> dict[str, Any]:
        """A batch of one person that takes more items."""
        made = {"agents": [AGENT], "items": [{"input": "hello"}], "complete": False, **body}
        return await self.have(by, "POST", "/v1/batches", made)


@asynccontextmanager
async def office(settings: Settings = KEYED) -> AsyncIterator[Office]:
    with turned_clock(NOON) as clock:
        async with world(settings, rules=RULE, tools=[pay], server=TurnedDatabase()) as api:
            await api.meet_worker()
            made = Office(api, clock)
            yield made
            for asking in made.asking:
                await end(asking)


@pytest.fixture
async def desk() -> AsyncIterator[Office]:
    async with office() as made:
        yield made


async def test_subjects_of_a_key_are_persons_and_neither_is_the_key(
    desk: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes = ["runs:submit", "runs:read", "actions:approve"]
    conversation = (await desk.have("bob", "POST", "/v1/conversations", {"agent": AGENT}))["id"]
    for name, subject in (("u1", "user:1"), ("u2", "user:2"), ("plain", None)):
        asked = {"conversation": conversation, "scopes": scopes, **({} if subject is None else {"subject": subject})}
        monkeypatch.setitem(KEYS, name, (await desk.have("ann", "POST", "/v1/tokens", asked))["token"])
    for by, none_of, but in (("u1", "u1", "u2"), ("u2", "u2", "ann")):
        run = await desk.submit(by, PAY, conversation_id=conversation)
        waits = await desk.pay(run)
        await desk.check(waits, none_of=none_of, but=but)
        await desk.have("bob", "POST", f"/v1/runs/{waits}/cancel")
    run = await desk.submit("plain", PAY, conversation_id=conversation)
    # A token without a subject is the key that made it.
    await desk.check(await desk.pay(run), none_of="plain ann u1 u2", but="cid")


async def test_who_wrote_the_version_of_the_agent(desk: Office) -> None:
    await desk.have("cid", "PUT", "/v1/agents/teller", {**AGENT, "instructions": "Be brief."})
    await desk.have("ann", "PUT", "/v1/agents/teller", {**AGENT, "instructions": PAY})
    newest = await desk.submit("bob", agent="teller")
    before = await desk.submit("bob", agent="teller@1")
    await desk.check(await desk.pay(newest), none_of="ann bob", but="cid")
    await desk.check(await desk.pay(before), none_of="bob cid", but="ann")


async def test_who_wrote_an_agent_among_the_tools_of_the_agent(desk: Office) -> None:
    await desk.have("ann", "PUT", "/v1/agents/teller", {**AGENT, "instructions": PAY})
    run = await desk.submit("bob", agent={**AGENT, "tools": ["pay", "agent:teller"]})
    await desk.check(await desk.pay(run), none_of="ann bob", but="cid")


async def test_who_set_a_secret(desk: Office) -> None:
    secrets = {"secrets": {"ACCOUNT": "that of ann"}}
    begun = await desk.have("ann", "POST", "/v1/conversations", secrets)
    run = await desk.submit("bob", conversation_id=begun["id"], agent=AGENT)
    await desk.check(await desk.pay(run), none_of="ann bob", but="cid")
    run = await desk.submit("bob")
    waits = await desk.pay(run)
    await desk.have("ann", "PATCH", f"/v1/conversations/{run['conversation_id']}/secrets", secrets)
    await desk.check(waits, none_of="ann bob", but="cid")


async def test_who_set_a_secret_with_a_run_that_says_nothing(desk: Office) -> None:
    run = await desk.submit("bob")
    await desk.end(run)
    there = {"conversation_id": run["conversation_id"]}
    await desk.have("bob", "POST", f"/v1/conversations/{run['conversation_id']}/messages", {"input": "hello"})
    silent = await desk.submit("ann", [], **there, secrets={"ACCOUNT": "that of ann"})
    await desk.have("ann", "POST", f"/v1/runs/{silent['id']}/cancel")
    await desk.check(await desk.pay(await desk.submit("bob", **there)), none_of="ann bob", but="cid")


async def test_an_agent_that_was_put_without_a_name_has_no_second_person(desk: Office) -> None:
    await desk.api.store.agents.keep("", "teller", (await _spec(desk)), by=None)
    answer = await desk.ask("bob", "POST", "/v1/runs", {"agent": "teller", "input": "hello"})
    problem = assert_problem(answer, 403, "second_person_required", "/agent/approvals/second_person")
    assert "Remove it, and put it again" in problem["errors"][0]["message"]


async def _spec(desk: Office) -> Any:
    run = await desk.submit("dan")
    return (await desk.api.store.runs.get(run["id"])).agent.model_copy(update={"name": None})


async def test_who_gave_the_conversation_its_agent(desk: Office) -> None:
    made = await desk.have("ann", "POST", "/v1/conversations", {"agent": {**AGENT, "instructions": PAY}})
    run = await desk.submit("bob", conversation_id=made["id"])
    await desk.check(await desk.pay(run), none_of="ann bob", but="cid")
    other = await desk.have("bob", "POST", "/v1/conversations", {"agent": AGENT})
    path = f"/v1/conversations/{other['id']}"
    await desk.have("ann", "PATCH", path, {"agent": {**AGENT, "instructions": PAY}})
    run = await desk.submit("bob", conversation_id=other["id"])
    await desk.check(await desk.pay(run), none_of="ann bob", but="cid")
