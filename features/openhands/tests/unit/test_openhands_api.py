"""OpenHands' dialect over HTTP: what a client may do, what it gets, and what it is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from features.openhands import steering
from features.openhands.tests.unit.test_openhands_agents import AGENT
from palaver import operations
from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure, NoRoom, StateConflict, StoreUnavailable
from palaver.schemas.models import Message, ToolCall
from palaver.steps.verdicts import Continue, GiveUp, ToolOutcome
from palaver.vocabulary.ids import uuid_of
from palaver.vocabulary.lifecycle import StopReason
from tests.unit.api_world import World, call, in_one_world, world

PREFIX = "/openhands/api/conversations"


@dataclass
class Talk:
    """A conversation, and what a client asks of it."""

    api: World
    id: str

    async def ask(self, method: str, rest: str = "", body: Any = None, status: int = 200) -> Any:
        """The JSON that answers."""
        answer = await self.api.client.request(method, f"{PREFIX}/{self.id}{rest}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def say(self, text: str = "hi", *, run: bool = False) -> None:
        """Send a message, and perhaps run."""
        content = [{"type": "text", "text": text, "cache_prompt": False}]
        await self.ask("POST", "/events", {"role": "user", "content": content, "run": run})

    async def status(self) -> str:
        """Its execution status."""
        return str((await self.ask("GET"))["execution_status"])

    async def run(self) -> dict[str, Any]:
        """Its newest run, as it is here."""
        runs = (await self.api.client.get("/v1/runs")).json()["data"]
        return next(run for run in runs if str(uuid_of(run["conversation_id"])) == self.id)

    async def events(self, query: str = "") -> list[dict[str, Any]]:
        """All of its events, page by page."""
        found, page = [], ""
        while True:
            answer = await self.ask("GET", f"/events/search?limit=2{page}{query}")
            found += answer["items"]
            if answer["next_page_id"] is None:
                return found
            page = f"&page_id={answer['next_page_id']}"


async def begin(api: World, **fields: Any) -> Talk:
    body = {"agent": AGENT, "client_tools": [], "tags": {"team": "a"}, **fields}
    answer = await api.client.post(PREFIX, json=body)
    assert answer.status_code == 201, answer.text
    return Talk(api, answer.json()["id"])


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    async with world() as api:
        yield await begin(api)


async def test_a_conversation_is_begun_once() -> None:
    async with world() as api:
        number = str(uuid4())
        body = {"agent": AGENT, "conversation_id": number, "max_iterations": 7}
        answers = [await api.client.post(PREFIX, json=body) for _ in range(2)]
        assert [each.status_code for each in answers] == [201, 200]
        assert [each.json()["id"] for each in answers] == [number, number]
        assert answers[0].json()["max_iterations"] == 7


async def test_the_way_of_a_conversation(talk: Talk) -> None:
    assert await talk.status() == "idle"
    await talk.say()
    assert await talk.status() == "idle"
    await talk.ask("POST", "/run")
    assert await talk.status() == "running"
    await talk.ask("POST", "/run", status=409)
    await talk.api.finish(await talk.run(), "hello")
    assert await talk.status() == "finished"
    assert await talk.ask("GET", "/agent_final_response") == {"response": "hello"}
    await talk.ask("POST", "/run")
    assert await talk.status() == "finished", "nothing was said, so there is nothing to run"
    await talk.say("and?")
    assert await talk.status() == "idle"
    await talk.ask("DELETE")
    await talk.ask("GET", status=404)


async def test_nothing_said_is_nothing_to_run(talk: Talk) -> None:
    # 409 would be waited for.
    await talk.ask("POST", "/run", status=422)


async def test_a_message_may_run_at_once(talk: Talk) -> None:
    await talk.say(run=True)
    assert await talk.status() == "running"
    await talk.say("again", run=True)


async def test_a_first_message_runs_unless_it_says_otherwise() -> None:
    async with world() as api:
        message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
        assert await (await begin(api, initial_message=message)).status() == "running"
        assert await (await begin(api, initial_message={**message, "run": False})).status() == "idle"


async def test_a_pause_holds_until_it_is_run(talk: Talk) -> None:
    await talk.ask("POST", "/pause")
    await talk.say(run=True)
    for word in ("/pause", "/interrupt"):
        await talk.ask("POST", word)
        assert await talk.status() == "paused"
        await talk.ask("POST", "/run")
        assert await talk.status() == "running"


@pytest.mark.slow
async def test_what_waits_is_approved_by_running_or_rejected() -> None:
    async with world() as api:
        for decide, then in (
            (("/run", None), "running"),
            (("/events/respond_to_confirmation", {"accept": True}), "running"),
            (("/events/respond_to_confirmation", {"accept": False, "reason": "No."}), "idle"),
        ):
            talk = await begin(api, confirmation_policy={"kind": "AlwaysConfirm"})
            await talk.say(run=True)
            await api.ask(await talk.run(), call("c1", "approval"))
            assert await talk.status() == "waiting_for_confirmation"
            await talk.ask("POST", *decide)
            assert await talk.status() == then
        [rejected] = [event for event in await talk.events() if event["kind"] == "UserRejectObservation"]
        assert rejected["rejection_reason"].endswith("No.")
        await talk.ask("POST", "/run")
        assert await talk.status() == "running"


@pytest.mark.parametrize(
    "words",
    [
        [("/events", {"role": "user", "content": "do NOT pay", "run": True})],
        [("/events", {"role": "user", "content": "do NOT pay"}), ("/run", None)],
        [("/events", {"role": "user", "content": "yes, approved"}), ("/run", None)],
    ],
)
async def test_words_never_approve(words: list[tuple[str, Any]]) -> None:
    async with world() as api:
        talk = await begin(api, confirmation_policy={"kind": "AlwaysConfirm"})
        await talk.say(run=True)
        await api.ask(await talk.run(), call("c1", "approval"))
        for path, body in words:
            assert await talk.status() == "waiting_for_confirmation"
            await talk.ask("POST", path, body)
        assert await talk.status() == "running"
        [rejected] = [event for event in await talk.events() if event["kind"] == "UserRejectObservation"]
        assert rejected["rejection_reason"].endswith("Superseded by a new user message")
        assert (await talk.run())["step"] == 2


async def test_words_that_came_before_the_call_waited_do_not_approve_either(talk: Talk) -> None:
    await talk.ask("POST", "/confirmation_policy", {"policy": {"kind": "AlwaysConfirm"}})
    await talk.say(run=True)
    lease = await talk.api.claim(await talk.run())
    await talk.say("do NOT pay")
    waits = call("c1", "approval")
    asked = Message(role="assistant", tool_calls=(waits.call,))
    await talk.api.store.steps.settle(lease, Continue(asked, calls=(waits,)))
    assert await talk.status() == "waiting_for_confirmation"
    await talk.ask("POST", "/run")
    assert [event["kind"] for event in await talk.events()].count("UserRejectObservation") == 1


async def test_an_approval_is_one_after_words_too(talk: Talk) -> None:
    await talk.ask("POST", "/confirmation_policy", {"policy": {"kind": "AlwaysConfirm"}})
    await talk.say(run=True)
    await talk.api.ask(await talk.run(), call("c1", "approval"))
    await talk.say("I have looked at it")
    await talk.ask("POST", "/events/respond_to_confirmation", {"accept": True})
    assert await talk.status() == "running"
    assert "UserRejectObservation" not in [event["kind"] for event in await talk.events()]


async def test_a_run_that_failed_goes_on(talk: Talk) -> None:
    await talk.say(run=True)
    await talk.api.fail(await talk.run(), ErrorClass.AUTHENTICATION)
    assert await talk.status() == "error"
    [error] = [event for event in await talk.events() if event["kind"] == "ConversationErrorEvent"]
    assert error["code"] == "LLMAuthenticationError"
    await talk.ask("POST", "/run")
    assert await talk.status() == "running"
    await talk.api.fail(await talk.run(), ErrorClass.AUTHENTICATION)
    await talk.say("never mind")
    assert await talk.status() == "error", "only what is finished or stuck becomes idle by that"
    await talk.ask("POST", "/run")
    assert await talk.status() == "running"


@pytest.mark.slow
async def test_a_run_that_was_stuck_is_over_by_a_message_or_goes_on(talk: Talk) -> None:
    asked = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="calculator"),))
    result = Message(role="tool", call_id="c1", name="calculator", content="2")
    for goes_on in (False, True):
        await talk.say(run=True)
        stuck = GiveUp(Failure.of(ErrorClass.STUCK), StopReason.STUCK)
        await talk.api.store.steps.settle(
            await talk.api.claim(await talk.run()), Continue(asked, (ToolOutcome(result),))
        )
        await talk.api.store.steps.settle(await talk.api.claim(await talk.run()), stuck)
        assert await talk.status() == "stuck"
        if not goes_on:
            await talk.say("try something else")
            assert await talk.status() == "idle"
        await talk.ask("POST", "/run")
        assert await talk.status() == "running"
        await talk.api.finish(await talk.run())


@pytest.mark.slow
async def test_events_come_in_pages_and_each_once(talk: Talk) -> None:
    for each in "abc":
        await talk.say(each, run=True)
        await talk.api.finish(await talk.run(), f"{each}!")
    everything = await talk.events()
    kinds = [event["kind"] for event in everything]
    assert kinds[:2] == ["SystemPromptEvent", "MessageEvent"]
    assert len({event["id"] for event in everything}) == len(everything)
    assert await talk.ask("GET", "/events/count") == len(everything)
    assert await talk.events("&sort_order=TIMESTAMP_DESC") == everything[::-1]
    said = await talk.events("&kind=MessageEvent&source=user&body=B")
    assert [event["llm_message"]["content"][0]["text"] for event in said] == ["b"]
    later = await talk.events(f"&timestamp__gte={everything[3]['timestamp']}")
    assert later[-1] == everything[-1]
    for event in everything:
        assert await talk.ask("GET", f"/events/{event['id']}") == event
    page = await talk.ask("GET", f"/events/search?page_id={everything[3]['id']}")
    assert page["items"] == everything[3:]
    assert (await talk.ask("GET", "/events/search?page_id=nothing"))["items"] == everything
    await talk.ask("GET", f"/events/{uuid4()}", status=404)
    await talk.ask("GET", "/events/search?limit=101", status=422)


async def test_title_tags_policy_and_analyzer_are_changed(talk: Talk) -> None:
    await talk.ask("PATCH", body={"title": "T"})
    await talk.ask("PATCH", body={"tags": {"x": "y"}})
    await talk.ask("PATCH", body={"title": "T", "tags": None})
    assert (await talk.ask("GET"))["tags"] == {}
    await talk.ask("PATCH", body={"tags": {"x": "y"}})
    await talk.ask("POST", "/confirmation_policy", {"policy": {"kind": "ConfirmRisky", "threshold": "MEDIUM"}})
    await talk.ask("POST", "/security_analyzer", {"security_analyzer": {"kind": "LLMSecurityAnalyzer"}})
    info = await talk.ask("GET")
    assert (info["title"], info["tags"]) == ("T", {"x": "y"})
    assert info["confirmation_policy"] == {"kind": "ConfirmRisky", "threshold": "MEDIUM", "confirm_unknown": True}
    assert info["security_analyzer"] == {"kind": "LLMSecurityAnalyzer"}
    native = (await talk.api.client.get(native_path(talk))).json()
    assert native["agent"]["approvals"]["require"] == "risky"


async def test_only_a_run_that_goes_on_is_a_conflict(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    # Clients wait for an hour behind a 409.
    for code, status in (
        ("conversation_busy", 409), ("conversation_full", 422), ("conversation_moved_on", 422),
        ("queue_full", 429), ("conversation_changed", 429),
    ):  # fmt: skip

        async def refuse(*_: Any, code: str = code) -> None:
            raise StateConflict(code, None, "no")

        monkeypatch.setattr(steering, "begin_run", refuse)
        await talk.ask("POST", "/run", status=status)
        said = {"role": "user", "content": "hi", "run": True}
        await talk.ask("POST", "/events", said, status=200 if status == 409 else status)


async def test_words_that_are_sent_again_with_their_key_are_said_once(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any, **__: Any) -> None:
        raise NoRoom("too_many_runs", "no")

    sending: dict[str, Any] = {
        "json": {"role": "user", "content": "hi", "run": True},
        "headers": {"Idempotency-Key": "k-1"},
    }
    path = f"{PREFIX}/{talk.id}/events"
    with monkeypatch.context() as broken:
        broken.setattr(operations, "begin", full)
        assert (await talk.api.client.post(path, **sending)).status_code == 429
    assert await talk.status() == "idle"
    for _ in range(2):
        assert (await talk.api.client.post(path, **sending)).status_code == 200
    assert await talk.status() == "running"
    assert len(await talk.events("&kind=MessageEvent")) == 1
    await talk.say("hi", run=True)
    await talk.api.finish(await talk.run())
    assert len(await talk.events("&kind=MessageEvent&source=user")) == 2, "without a key nothing tells them apart"


async def test_what_nobody_can_answer_is_not_said() -> None:
    async with world() as api:
        begun = (await api.client.post("/v1/conversations", json={})).json()
        talk = Talk(api, str(uuid_of(begun["id"])))
        await talk.ask("POST", "/events", {"role": "user", "content": "hi", "run": True}, status=422)
        assert await talk.events() == []


async def test_a_beginning_that_broke_off_is_finished_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable

    async with world() as api:
        for name in ("append", "begin"):
            talk = Talk(api, str(uuid4()))
            first = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
            body = {"agent": AGENT, "conversation_id": talk.id, "initial_message": first}
            with monkeypatch.context() as broken:
                broken.setattr(operations, name, away)
                assert (await api.client.post(PREFIX, json=body)).status_code == 503
            for _ in range(2):
                assert (await api.client.post(PREFIX, json=body)).status_code == 200
            assert await talk.status() == "running"
            assert len(await talk.events("&kind=MessageEvent")) == 1


@pytest.mark.parametrize("then", ["waiting_for_confirmation", "paused"])
async def test_words_that_are_sent_again_decide_nothing(then: str) -> None:
    async with world() as api:
        talk = await begin(api, confirmation_policy={"kind": "AlwaysConfirm"})
        path, headers = f"{PREFIX}/{talk.id}/events", {"Idempotency-Key": "k-1"}
        body = {"role": "user", "content": "hi", "run": True}
        assert (await api.client.post(path, json=body, headers=headers)).status_code == 200
        if then == "paused":
            await talk.ask("POST", "/pause")
        else:
            await api.ask(await talk.run(), call("c1", "approval"))
        assert (await api.client.post(path, json=body, headers=headers)).status_code == 200
        assert await talk.status() == then


async def test_the_prompt_of_a_fork_comes_first(talk: Talk) -> None:
    await talk.say()
    fork = await talk.ask("POST", "/fork", {}, 201)
    events = await Talk(talk.api, fork["id"]).events()
    assert [event["kind"] for event in events] == ["SystemPromptEvent", "MessageEvent"]
    assert events[0]["timestamp"] <= events[1]["timestamp"]


async def test_several_are_read_at_once(talk: Talk) -> None:
    other = str(uuid4())
    answer = await talk.api.client.get(f"{PREFIX}?ids={talk.id}&ids={other}")
    assert [each and each["id"] for each in answer.json()] == [talk.id, None]


@pytest.mark.slow
async def test_another_way_is_gone_from_an_earlier_event(talk: Talk) -> None:
    for each in "ab":
        await talk.say(each, run=True)
        await talk.api.finish(await talk.run(), f"{each}!")
    everything = await talk.events()
    answer = next(event for event in everything if event["source"] == "agent" and event["kind"] == "MessageEvent")
    fork = await talk.ask("POST", "/fork", {"title": "F", "from_event_id": answer["id"], "reset_metrics": True}, 201)
    copied = await Talk(talk.api, fork["id"]).events("&kind=MessageEvent")
    assert [event["llm_message"]["content"][0]["text"] for event in copied] == ["a", "a!"]
    assert fork["title"] == "F"
    await talk.ask("POST", "/navigate", {"event_id": answer["id"]})
    assert (await talk.events())[: len(everything)] == everything, "events stay"
    question = next(event for event in everything if event["source"] == "user")
    await talk.ask("POST", "/navigate", {"event_id": question["id"]})
    assert await talk.status() == "idle", "it is unanswered again"
    await talk.ask("POST", "/run")
    assert await talk.status() == "running"
    await talk.ask("POST", "/navigate", {"event_id": str(uuid4())}, 422)


async def test_conversations_are_searched_and_counted() -> None:
    async with world() as api:
        talks = [await begin(api, title=name) for name in "abc"]
        await talks[1].say(run=True)
        found, page = [], ""
        while True:
            answer = (await api.client.get(f"{PREFIX}/search?limit=2&sort_order=CREATED_AT{page}")).json()
            found += [each["title"] for each in answer["items"]]
            if answer["next_page_id"] is None:
                break
            page = f"&page_id={answer['next_page_id']}"
        assert found == ["a", "b", "c"]
        running = (await api.client.get(f"{PREFIX}/search?status=running")).json()
        assert [each["id"] for each in running["items"]] == [talks[1].id]
        assert (await api.client.get(f"{PREFIX}/count?status=idle")).json() == 2
        assert (await api.client.get(f"{PREFIX}/search?status=asleep")).status_code == 422


async def test_a_conversation_of_ours_is_seen() -> None:
    async with world() as api:
        run = await api.submit()
        talk = Talk(api, str(uuid_of(run["conversation_id"])))
        assert await talk.status() == "running"
        assert [event["kind"] for event in await talk.events()][:2] == [
            "SystemPromptEvent",
            "ConversationStateUpdateEvent",
        ]


@in_one_world(
    [
        ({"agent": {**AGENT, "llm": {"model": "nowhere/x"}}}, ["body", "agent", "llm", "model"]),
        ({"agent": {"llm": {}}}, ["body", "agent", "llm", "model"]),
        (
            {"agent": {**AGENT, "llm": {"model": "openai/x", "base_url": "http://10.0.0.1"}}},
            ["body", "agent", "llm", "base_url"],
        ),
        ({"client_tools": [{"name": "a b", "description": ""}]}, ["body", "client_tools", "0", "name"]),
        (
            {"client_tools": [{"name": "a", "description": "", "parameters": {"type": "string"}}]},
            ["body", "client_tools", "0", "parameters", "type"],
        ),
        ({"client_tools": [{"name": "finish", "description": ""}]}, ["body", "client_tools", "0", "name"]),
        ({"tags": {"a" * 1000: "b"}}, ["body", "tags"]),
        ({"initial_message": {"content": [{"type": "image", "image_urls": ["no"]}]}}, ["body", "content", "url"]),
        ({"plugins": [{"source": "a"}]}, ["body", "plugins"]),
        ({"agent": {**AGENT, "mcp_config": {"a": {}}}}, ["body", "agent", "mcp_config", "a", "url"]),
        ({"max_iterations": 0}, ["body", "max_iterations"]),
    ]
)
async def test_what_there_is_not_is_refused_at_its_place(api: World, fields: dict[str, Any], place: list[str]) -> None:
    answer = await api.client.post(PREFIX, json={"agent": AGENT, **fields})
    assert answer.status_code == 422
    assert [each["loc"] for each in answer.json()["detail"]] == [place]
    assert "sk-secret" not in answer.text


async def test_no_answer_has_a_key(talk: Talk) -> None:
    await talk.say(run=True)
    native = await talk.api.client.get(native_path(talk))
    told = [await talk.ask("GET"), await talk.events(), native.json(), await talk.run()]
    assert "sk-secret" not in str(told)


async def test_keys_are_neither_kept_nor_told_wherever_they_are_sent() -> None:
    skill = {"name": "s", "content": "c", "mcp_tools": {"x": {"env": {"T": "leak"}, "headers": {"A": "leak"}}}}
    async with world() as api:
        talk = await begin(
            api,
            agent={**AGENT, "agent_context": {"skills": [skill]}, "critic": {"kind": "C", "API_KEY": "leak"}},
            workspace={"kind": "RemoteWorkspace", "working_dir": "w", "host": "h", "api_key": "leak"},
            security_analyzer={"kind": "A", "api_key": "leak"},
        )
        await talk.ask("POST", "/security_analyzer", {"security_analyzer": {"kind": "B", "url": "leak"}})
        fork = await talk.ask("POST", "/fork", {}, 201)
        told = await talk.ask("GET")
        kept = [await api.redis.hgetall(key) for key in await api.redis.keys("*") if await _is_hash(api, key)]
    assert "leak" not in str([fork, told, kept])
    assert fork["workspace"] == {"kind": "RemoteWorkspace", "working_dir": "w"}
    assert fork["security_analyzer"] == {"kind": "B"}
    assert fork["agent"]["agent_context"]["skills"] == [{"name": "s", "content": "c"}]


async def _is_hash(api: World, key: bytes | str) -> bool:
    return bool(await api.redis.type(key) == b"hash")


@pytest.mark.parametrize("path", [f"{PREFIX}/no-uuid", f"{PREFIX}/no-uuid/events/search"])
async def test_what_is_no_uuid_is_refused(path: str) -> None:
    async with world() as api:
        assert (await api.client.get(path)).status_code == 422


async def test_a_session_key_is_a_key() -> None:
    async with world(Settings(redis_url="redis://fake/0", api_keys="key-of-the-operators")) as api:
        for headers, status in (
            ({}, 401),
            ({"X-Session-API-Key": "no"}, 401),
            ({"X-Session-API-Key": "key-of-the-operators"}, 404),
        ):
            answer = await api.client.get(f"{PREFIX}/{uuid4()}", headers=headers)
            assert answer.status_code == status
            assert isinstance(answer.json()["detail"], str)
        assert (
            await api.client.get("/v1/runs", headers={"X-Session-API-Key": "key-of-the-operators"})
        ).status_code == 401


async def test_who_asks_whether_it_is_there_needs_no_key() -> None:
    async with world(Settings(redis_url="redis://fake/0", api_keys="key-of-the-operators")) as api:
        for name in ("health", "alive", "ready", "server_info"):
            assert (await api.client.get(f"/openhands/{name}")).status_code == 200


def native_path(talk: Talk) -> str:
    """The conversation among ours."""
    return f"/v1/conversations/{talk.api.store.runs.conversation_of_number(UUID(talk.id))}"
