"""What a submission must be beyond its shape: known names, whole turns, times that make sense."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from palaver.config.providers import Provider
from tests.unit.api_world import AGENT, BODY, POLICIES, World, assert_problem, in_one_world, world

NOW = datetime.now(UTC)


def _user(text: Any = "hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def _call(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": each, "name": "calculator"} for each in ids]}


def _result(call_id: str | None) -> dict[str, Any]:
    return {"role": "tool", "content": "2", "call_id": call_id}


@in_one_world(
    [
        ([_result("c1")], "/input/0", "'c1'"),
        ([_user(), _result(None)], "/input/1", "needs the call_id"),
        ([_user(), _call("c1"), _user()], "/input/1", "'c1' has no result"),
        ([_user(), _call("c1", "c2"), _result("c2"), _user()], "/input/1", "'c1' has no result"),
        ([_user(), _call("c1")], "/input/1", "'c1' has no result"),
        ([_user(), _call("c1"), _result("c1"), _result("c1")], "/input/3", "second result"),
        ([_user(), _call("c1"), _result("c2"), _result("c1")], "/input/2", "no call 'c2'"),
        ([_user(), _call("c1", "c1"), _result("c1")], "/input/1", "twice"),
        ([_user(), _call(""), _result("")], "/input/1", "needs an id"),
        ([_user(), _call("c1"), _user("stop"), _result("c1")], "/input/1", "'c1' has no result"),
        ([_user(), {"role": "assistant", "content": "bye"}], "/input/1", "last message"),
        (
            [{**_user(), "tool_calls": [{"id": "c1", "name": "a"}]}, _result("c1")],
            "/input/0",
            "no tool_calls",
        ),
        ([{**_user(), "call_id": "c1"}], "/input/0", "only a tool message"),
    ]
)
async def test_messages_must_be_whole_turns(api: World, messages: list[dict[str, Any]], place: str, says: str) -> None:
    answer = await api.client.post("/v1/runs", json={**BODY, "input": messages})
    assert answer.status_code == 422
    faults = [fault for fault in answer.json()["errors"] if fault["pointer"] == place]
    assert faults, answer.text
    assert {fault["code"] for fault in faults} == {"invalid_history"}
    assert any(says in fault["message"] for fault in faults), faults


LOOK = {"type": "text", "text": "look"}
IMAGE = {"type": "image", "url": "https://example.com/a.png"}
FILE = {"type": "file", "url": "data:application/pdf;base64,JVBERi0=", "name": "a.pdf"}


@in_one_world(
    [
        ({"role": "user", "content": [LOOK, {"type": "file", "url": "https://example.com/a.pdf"}]}, "a data: URL"),
        ({"role": "user", "content": [LOOK, {"type": "reasoning", "text": "hm"}]}, "reasoning"),
        ({"role": "assistant", "content": [LOOK, IMAGE]}, "an image"),
    ]
)
async def test_what_no_model_can_be_sent_is_refused_and_not_left_out(
    api: World, message: dict[str, Any], says: str
) -> None:
    answer = await api.client.post("/v1/runs", json={**BODY, "input": [message, _user()]})
    problem = assert_problem(answer, 422, "unsupported_content", "/input/0/content/1")
    assert says in problem["errors"][0]["message"]
    kept = await api.submit(input=[{"role": "user", "content": [LOOK, IMAGE, FILE]}])
    there = {"conversation_id": kept["conversation_id"], "input": [message, _user()]}
    assert_problem(await api.client.post("/v1/runs", json=there), 422, "unsupported_content", "/input/0/content/1")
    await api.submit(agent=None, conversation_id=kept["conversation_id"], input=[_user([LOOK, IMAGE])])


@in_one_world(
    [
        ({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}, "audio cannot be sent"),
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, '"type": "image", "url"'),
        ({"type": "input_file", "file_data": "x"}, '"type": "file"'),
    ]
)
async def test_a_part_of_another_api_is_refused_with_what_there_is_here(
    api: World, part: dict[str, Any], says: str
) -> None:
    answer = await api.client.post("/v1/runs", json={**BODY, "input": [_user([part])]})
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["pointer"]) == (422, "/input/0/content/0")
    assert fault["code"] == "unsupported_content"
    assert says in fault["message"]


@pytest.mark.parametrize("content", [5, None, {}, [5], [{}], [{"type": "image"}], [{"type": "x"}], ["look"]])
async def test_content_is_a_text_or_parts(content: Any) -> None:
    async with world() as api:
        answer = await api.client.post("/v1/runs", json={**BODY, "input": [{"role": "user", "content": content}]})
        assert answer.status_code == 422
        (first, *_) = answer.json()["errors"]
        assert first["pointer"].startswith("/input/0/content"), answer.text
        assert len(answer.json()["errors"]) <= 2, answer.text


@pytest.mark.parametrize(
    "messages",
    [
        [_user()],
        [_user(), {"role": "assistant", "content": "hello"}, _user("and?")],
        [_user(), _call("c1", "c2"), _result("c2"), _result("c1")],
        [
            _user(),
            _call("c1"),
            _result("c1"),
            _call("c1"),
            {**_result("c1"), "is_error": True},
            _user("go on"),
        ],
    ],
)
async def test_whole_turns_are_taken_and_kept_in_order(messages: list[dict[str, Any]]) -> None:
    async with world() as api:
        run = await api.submit(input=messages)
        kept = (await api.client.get(f"{run['links']['conversation']}/messages")).json()["data"]
        assert [message["role"] for message in kept] == [message["role"] for message in messages]
        assert [message["call_id"] for message in kept] == [message.get("call_id") for message in messages]


@in_one_world(["", "  \n\t", [], [_user("")], [_user(" ")], [{"role": "user"}]])
async def test_an_input_that_says_nothing_is_refused(api: World, given: object) -> None:
    assert_problem(await api.client.post("/v1/runs", json={**BODY, "input": given}), 422, "empty_input")


@in_one_world(
    [
        ({"model": "fak/a"}, "unknown_provider", "/agent/model", "did you mean 'fake'?"),
        ({"model": "openai/gpt"}, "unknown_provider", "/agent/model", "there are: fake"),
        ({"tools": ["calculater"]}, "unknown_tool", "/agent/tools/0", "did you mean 'calculator'?"),
        ({"tools": ["clock", "xyz"]}, "unknown_tool", "/agent/tools/1", "calculator, clock, finish, think, wait"),
        ({"tools": ["clock", "clock"]}, "duplicate_tool", "/agent/tools/1", "before"),
        ({"fallbacks": ["fake/a", "fak/b"]}, "unknown_provider", "/agent/fallbacks/1", "did you mean 'fake'?"),
        ({"retry": "patiently"}, "unknown_policy", "/agent/retry", "did you mean 'patient'?"),
        ({"retry": {"tools": {"attempts": 2}}}, "invalid_policy", "/agent/retry/tools", "a tool declares its own"),
        ({"retry": {"rules": {"timout": {}}}}, "invalid_policy", "/agent/retry/rules/timout", "did you mean timeout?"),
        (
            {"retry": {"rules": {"timeout": {"attempts": 0}}}},
            "invalid_policy",
            "/agent/retry/rules/timeout/attempts",
            "from 1 to 100",
        ),
        ({"client_tools": [{"name": "calculator"}]}, "duplicate_tool", "/agent/client_tools/0/name", "rename it"),
        ({"client_tools": [{"name": "a"}, {"name": "a"}]}, "duplicate_tool", "/agent/client_tools/1/name", "before"),
        (
            {"approvals": {"require": ["calculater"]}},
            "unknown_tool",
            "/agent/approvals/require/0",
            "did you mean 'calculator'?",
        ),
        (
            {"approvals": {"require": ["calc*", "send_*"]}},
            "unknown_tool",
            "/agent/approvals/require/1",
            "they are: calculator",
        ),
        (
            {"client_tools": [{"name": "ask"}], "approvals": {"require": ["ask"]}, "tools": []},
            "unknown_tool",
            "/agent/approvals/require/0",
            "they are: none",
        ),
    ]
)
async def test_names_must_be_known(api: World, agent: dict[str, Any], code: str, place: str, says: str) -> None:
    for path, body in (("/v1/runs", {"input": "hi"}), ("/v1/conversations", {})):
        answer = await api.client.post(path, json={**body, "agent": {**AGENT, **agent}})
        problem = assert_problem(answer, 422, code, place)
        assert says in problem["errors"][0]["message"]


PRICED = Provider.model_validate(
    {"base_url": "http://127.0.0.1:1/v1", "prices": {"known": {"input": 1.0, "output": 2.0}}}
)


@in_one_world(
    [
        ({"model": "priced/known", "fallbacks": ["priced/known"]}, []),
        ({"model": "priced/new"}, ["/agent/model"]),
        ({"model": "priced/known", "fallbacks": ["priced/known", "priced/new"]}, ["/agent/fallbacks/1"]),
        ({"model": "priced/new", "fallbacks": ["priced/newer"]}, ["/agent/model", "/agent/fallbacks/0"]),
    ],
    providers={"priced": PRICED},
)
async def test_a_budget_in_dollars_needs_the_price_of_every_model(
    api: World, agent: dict[str, Any], places: list[str]
) -> None:
    assert (await api.client.post("/v1/runs", json={"agent": agent, "input": "hi"})).status_code == 202
    body = {"agent": agent, "input": "hi", "budget": {"cost_usd": 0.5}}
    answer = await api.client.post("/v1/runs", json=body)
    if places:
        problem = assert_problem(answer, 422, "unknown_price", *places)
        assert "[providers.priced.prices] of PALAVER_PROVIDERS" in problem["errors"][0]["message"]
    else:
        assert answer.status_code == 202, answer.text


async def test_a_price_for_all_others_will_do() -> None:
    provider = PRICED.model_copy(update={"prices": {"*": PRICED.prices["known"]}})
    async with world(providers={"fake": provider}) as api:
        assert (await api.submit(budget={"cost_usd": 1}))["budget"]["cost_usd"] == 1.0


async def test_the_models_of_the_conversations_own_agent_need_prices_too() -> None:
    async with world(providers={"priced": PRICED}) as api:
        for model, status in (("priced/known", 202), ("priced/new", 422)):
            created = await api.client.post("/v1/conversations", json={"agent": {"model": model}})
            body = {"conversation_id": created.json()["id"], "input": "hi", "budget": {"cost_usd": 0.5}}
            answer = await api.client.post("/v1/runs", json=body)
            assert answer.status_code == status, answer.text
        problem = assert_problem(answer, 422, "unknown_price", "/budget/cost_usd")
        assert "the conversation's /agent/model has no price" in problem["errors"][0]["message"]
        late = await api.client.post("/v1/runs", json={**body, "deadline": "2000-01-01T00:00:00Z"})
        assert_problem(late, 422, "validation_error", "/budget/cost_usd", "/deadline")
        nobodys = {**body, "conversation_id": "conv_00" + "0" * 26}
        assert_problem(await api.client.post("/v1/runs", json=nobodys), 422, "unknown_conversation")
        empty = (await api.client.post("/v1/conversations", json={})).json()["id"]
        assert_problem(await api.client.post("/v1/runs", json={**body, "conversation_id": empty}), 422, "no_agent")


@in_one_world(
    [
        ({"cost_usd": 0}, "/budget/cost_usd"),
        ({"cost_usd": "0.5"}, "/budget/cost_usd"),
        ({"seconds": 0}, "/budget/seconds"),
        ({"seconds": 1e9}, "/budget/seconds"),
        ({"tokens": 1.5}, "/budget/tokens"),
        ({"cost": 1}, "/budget/cost"),
    ]
)
async def test_a_budget_must_make_sense(api: World, budget: dict[str, Any], place: str) -> None:
    problem = assert_problem(
        await api.client.post("/v1/runs", json={**BODY, "budget": budget}), 422, "validation_error", place
    )
    assert place != "/budget/cost" or "did you mean 'cost_usd'?" in problem["errors"][0]["message"]


@in_one_world(["reject", "interrupt", "rollback", "steer"])
async def test_what_is_to_start_later_can_only_queue(api: World, on_conflict: str) -> None:
    body = {**BODY, "on_conflict": on_conflict, "start_after": (NOW + timedelta(hours=1)).isoformat()}
    problem = assert_problem(await api.client.post("/v1/runs", json=body), 422, "invalid_time", "/start_after")
    assert "on_conflict enqueue" in problem["errors"][0]["message"]


async def test_only_the_users_words_steer() -> None:
    async with world() as api:
        body = {**BODY, "on_conflict": "steer", "input": [_user(), _call("c1"), _result("c1"), _user()]}
        answer = await api.client.post("/v1/runs", json=body)
        assert_problem(answer, 422, "invalid_history", "/input/1/role", "/input/2/role")
        await api.submit(on_conflict="steer", input=[_user(), _user("and?")])


async def test_a_run_keeps_what_the_name_of_its_policy_meant() -> None:
    async with world() as api:
        answer = await api.client.post("/v1/runs", json={**BODY, "agent": {**AGENT, "retry": "patient"}})
        assert answer.json()["agent"]["retry"] == POLICIES["patient"].dump()


async def test_without_providers_it_says_where_they_come_from() -> None:
    async with world(providers={}) as api:
        problem = assert_problem(await api.client.post("/v1/runs", json=BODY), 422, "unknown_provider")
        assert "PALAVER_PROVIDERS" in problem["detail"]


@in_one_world(
    [
        ({"deadline": NOW - timedelta(seconds=1)}, "/deadline"),
        ({"start_by": NOW - timedelta(days=1)}, "/start_by"),
        ({"deadline": NOW + timedelta(days=400)}, "/deadline"),
        ({"start_after": NOW + timedelta(days=3650)}, "/start_after"),
        ({"start_after": NOW + timedelta(hours=2), "deadline": NOW + timedelta(hours=1)}, "/start_after"),
        ({"start_after": NOW + timedelta(hours=2), "start_by": NOW + timedelta(hours=2)}, "/start_after"),
        ({"start_after": NOW - timedelta(days=400)}, "/start_after"),
        ({"start_after": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=23)))}, "/start_after"),
        ({"deadline": datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-23)))}, "/deadline"),
        ({"deadline": datetime(2999, 1, 1)}, "/deadline"),
    ]
)
async def test_times_must_make_sense(api: World, times: dict[str, datetime], place: str) -> None:
    body = {**BODY, **{name: moment.isoformat() for name, moment in times.items()}}
    assert_problem(await api.client.post("/v1/runs", json=body), 422, "invalid_time", place)


async def test_times_that_make_sense_are_kept() -> None:
    async with world() as api:
        begins, ends = NOW + timedelta(hours=1), NOW + timedelta(days=365)
        run = await api.submit(start_after=begins.isoformat(), deadline=ends.isoformat())
        assert run["waiting"]["reason"] == "scheduled"
        assert datetime.fromisoformat(run["times"]["deadline"]) - ends < timedelta(milliseconds=1)
        assert api.publisher.deliveries == []


async def test_different_faults_together_are_a_validation_error() -> None:
    async with world() as api:
        body = {"agent": {"model": "x/y", "tools": ["nothing"]}, "input": " "}
        answer = await api.client.post("/v1/runs", json=body)
        problem = assert_problem(answer, 422, "validation_error", "/agent/model", "/agent/tools/0", "/input")
        codes = [fault["code"] for fault in problem["errors"]]
        assert codes == ["unknown_provider", "unknown_tool", "empty_input"]
