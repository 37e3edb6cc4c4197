"""What each call makes of each execution status in OpenHands' dialect, and what a look at a conversation has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from features.openhands.tests.unit.test_openhands_api import PREFIX, Talk, begin, native_path
from palaver.errors import ErrorClass, Failure
from palaver.schemas.models import Message, ToolCall
from palaver.steps.verdicts import Continue, GiveUp, ToolOutcome
from palaver.vocabulary.ids import uuid_of
from palaver.vocabulary.lifecycle import StopReason
from tests.unit.api_world import call, world

Reach = Callable[[Talk], Awaitable[None]]
_LOOK: Final = {
    "id", "workspace", "persistence_dir", "max_iterations", "stuck_detection", "execution_status",
    "confirmation_policy", "security_analyzer", "activated_knowledge_skills", "invoked_skills", "blocked_actions",
    "blocked_messages", "stats", "secret_registry", "agent_state", "title", "created_at", "updated_at", "tags",
    "agent", "client_tools", "tool_module_qualnames",
}  # fmt: skip


async def _idle(talk: Talk) -> None:
    await talk.say()


async def _running(talk: Talk) -> None:
    await talk.say(run=True)


async def _paused(talk: Talk) -> None:
    await talk.say(run=True)
    await talk.ask("POST", "/pause")


async def _paused_before_it_ran(talk: Talk) -> None:
    await talk.say()
    await talk.ask("POST", "/pause")


async def _waiting_for_confirmation(talk: Talk) -> None:
    await talk.say(run=True)
    await talk.api.ask(await talk.run(), call("c1", "approval"))


async def _finished(talk: Talk) -> None:
    await talk.say(run=True)
    await talk.api.finish(await talk.run())


async def _error(talk: Talk) -> None:
    await talk.say(run=True)
    await talk.api.fail(await talk.run())


async def _stuck(talk: Talk) -> None:
    await talk.say(run=True)
    asked = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="calculator"),))
    result = Message(role="tool", call_id="c1", name="calculator", content="2")
    for verdict in (
        Continue(asked, (ToolOutcome(result),)),
        GiveUp(Failure.of(ErrorClass.STUCK), StopReason.STUCK),
    ):
        await talk.api.store.steps.settle(await talk.api.claim(await talk.run()), verdict)


_SAY: Final = "POST", "/events", {"role": "user", "content": "and"}
_SAY_AND_RUN: Final = "POST", "/events", {"role": "user", "content": "and", "run": True}
_RUN: Final = "POST", "/run", None
_PAUSE: Final = "POST", "/pause", None
_INTERRUPT: Final = "POST", "/interrupt", None
_ACCEPT: Final = "POST", "/events/respond_to_confirmation", {"accept": True}
_REJECT: Final = "POST", "/events/respond_to_confirmation", {"accept": False, "reason": "No."}
_WAITS: Final = "waiting_for_confirmation"
_WORDS: Final = (_SAY, _RUN, _PAUSE, _INTERRUPT, _ACCEPT, _REJECT, _SAY_AND_RUN)
_TABLE: Final[dict[Reach, tuple[str, ...]]] = {
    _idle: ("idle", "running", "paused", "paused", "idle", "idle", "running"),
    _running: ("running", "running", "paused", "paused", "running", "running", "running"),
    _paused: ("paused", "running", "paused", "paused", "paused", "paused", "running"),
    _paused_before_it_ran: ("paused", "running", "paused", "paused", "paused", "paused", "running"),
    _waiting_for_confirmation: (_WAITS, "running", _WAITS, _WAITS, "running", "idle", "running"),
    _finished: ("idle", *["finished"] * 5, "running"),
    _error: ("error", "running", "error", "error", "error", "error", "running"),
    _stuck: ("idle", "running", "stuck", "stuck", "stuck", "stuck", "running"),
}
"""For each status what it is after each of the words."""


@pytest.mark.slow
@pytest.mark.parametrize("reach", _TABLE, ids=lambda each: each.__name__.strip("_"))
async def test_what_a_call_makes_of_a_status(reach: Reach) -> None:
    async with world() as api:
        for (method, rest, body), then in zip(_WORDS, _TABLE[reach], strict=True):
            talk = await begin(api, confirmation_policy={"kind": "AlwaysConfirm"})
            await reach(talk)
            assert reach.__name__.strip("_").startswith(await talk.status())
            busy = (reach, rest) == (_running, "/run")
            await talk.ask(method, rest, body, status=409 if busy else 200)
            assert await talk.status() == then, (rest, body)


@pytest.mark.parametrize(("word", "kind"), [("/pause", "PauseEvent"), ("/interrupt", "InterruptEvent")])
async def test_a_pause_and_an_interrupt_have_events_of_their_own(word: str, kind: str) -> None:
    async with world() as api:
        talk = await begin(api)
        await _running(talk)
        await talk.api.claim(await talk.run())
        await talk.ask("POST", word)
        events = (await talk.ask("GET", "/events/search"))["items"]
        assert [event["kind"] for event in events if event["kind"] in ("PauseEvent", "InterruptEvent")] == [kind]


async def test_what_is_paused_before_it_runs_is_so_until_it_runs() -> None:
    async with world() as api:
        talk = await begin(api)
        for _ in range(2):
            await talk.ask("POST", "/pause")
            assert await talk.status() == "paused"
            assert (await talk.ask("POST", "/fork", {}, 201))["execution_status"] == "idle"
            await _finished(talk)
            await talk.say()
            assert await talk.status() == "idle"


async def test_a_pause_leaves_the_agent_as_it_is() -> None:
    async with world() as api:
        agent = {"model": "fake/echo", "approvals": {"require": "risky"}}
        begun = (await api.client.post("/v1/conversations", json={"agent": agent})).json()
        talk = Talk(api, str(uuid_of(begun["id"])))
        await talk.ask("POST", "/pause")
        assert await talk.status() == "paused"
        now = (await api.client.get(native_path(talk))).json()
        assert now["agent"] == begun["agent"]


async def test_a_look_has_all_that_clients_read() -> None:
    async with world() as api:
        talk = await begin(api, max_iterations=7)
        await _finished(talk)
        looks = [await talk.ask("GET"), await talk.ask("POST", "/fork", {}, 201)]
        looks += (await api.client.get(f"{PREFIX}/search")).json()["items"]
        assert len(looks) == 4
        for look in looks:
            assert set(look) == _LOOK
            assert look["max_iterations"] == 7
