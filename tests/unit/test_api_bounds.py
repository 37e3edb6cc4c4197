"""Bodies that are made to cost much: what is done about each is bounded, however many faults it has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from api.http.strict_json import parse
from api.http.validation import validate
from api.native.bulk import BulkAction
from palaver.errors import Refused
from palaver.schemas.actions import RunInput
from palaver.schemas.models import Submission
from palaver.vocabulary.limits import exceeded, limit_of
from palaver.vocabulary.names import did_you_mean, some_of
from tests.cost.work import counted
from tests.unit.api_world import BODY, SETTINGS, assert_problem, world

AGENT: dict[str, Any] = {"model": "fake/echo"}
MANY = 9_900
NAMES = {f"field_{n}": 1 for n in range(MANY)}


def faults_of(body: dict[str, Any], model: type[BaseModel] = Submission) -> list[tuple[str, str]]:
    """The faults of a body that is refused, by place and code."""
    raw = json.dumps(body).encode()
    with pytest.raises(Refused) as refused:
        validate(model, raw, parse(raw), {})
    return [(fault.pointer, fault.code) for fault in refused.value.faults]


@pytest.mark.parametrize(
    ("body", "model", "fault"),
    [
        ({"agent": AGENT, "input": [1] * MANY}, Submission, ("/input", "too_long")),
        ({"agent": AGENT, "input": "x", "metadata": NAMES}, Submission, ("/metadata", "too_long")),
        ({"agent": AGENT, "input": "x", **NAMES}, Submission, ("/field_0", "unknown_field")),
        ({"agent": AGENT, "input": [{"role": "user", **NAMES}]}, Submission, ("/input/0/field_0", "unknown_field")),
        (
            {"agent": AGENT, "input": [{"role": "assistant", "tool_calls": [{}] * MANY}]},
            Submission,
            ("/input/0/tool_calls/0/id", "missing"),
        ),
        ({"agent": {**AGENT, "tools": ["a b"] * MANY}, "input": "x"}, Submission, ("/agent/tools", "too_long")),
        (
            {"agent": {**AGENT, "approvals": {"require": ["a b"] * MANY}}, "input": "x"},
            Submission,
            ("/agent/approvals/require", "too_long"),
        ),
        ({"items": [{}] * 4_900}, RunInput, ("/items", "too_long")),
        ({"action": "cancel", "filter": {"status": ["x"] * MANY}}, BulkAction, ("/filter/status", "value_error")),
    ],
    ids=["messages", "metadata", "fields", "fields of a message", "calls", "tools", "approvals", "items", "status"],
)  # fmt: skip
def test_a_body_full_of_faults_costs_no_more_than_reading_it(
    body: dict[str, Any], model: type[BaseModel], fault: tuple[str, str]
) -> None:
    with counted() as work:
        faults = faults_of(body, model)
    assert faults[0] == fault
    assert len(faults) <= limit_of("faults")
    # To compare each fault with each other would be millions.
    assert work.calls < 10 * MANY


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + b"{}," * 349_000 + b"{}]",
        b"[" + b"1," * 500_000 + b"1]",
        b"{" + b",".join(b'"%06d":1' % n for n in range(90_000)) + b"}",
        b"[" + b'"",' * 300_000 + b'""]',
        b'["' + b'\\"' * 400_000 + b'"' + b",1" * 50_000 + b"]",
    ],
    ids=["objects", "numbers", "fields", "texts", "behind a text"],
)
def test_a_body_of_too_many_values_is_refused_before_any_is_made(raw: bytes) -> None:
    before = exceeded["body_values"]
    with counted() as work, pytest.raises(Refused) as refused:
        parse(raw)
    assert refused.value.code == "too_many_items"
    assert exceeded["body_values"] == before + 1
    assert work.calls < 60_000


@pytest.mark.parametrize(
    "value",
    [
        "," * 100_000,
        ["," * 50] * 9_000,
        ['"' * 20, "\\" * 9, ',\\",' * 20_000],
        dict.fromkeys(map(str, range(9_000)), ","),
    ],
    ids=["a text", "many texts", "quotes in texts", "fields"],
)  # fmt: skip
def test_commas_in_texts_are_not_counted(value: object) -> None:
    assert parse(json.dumps(value).encode()) == value


def test_a_limit_is_exact() -> None:
    most_values = limit_of("body_values")
    assert len(parse(json.dumps([1] * (most_values - 1)).encode())) == most_values - 1
    with pytest.raises(Refused, match="too_many_items"):
        parse(json.dumps([1] * most_values).encode())


def test_a_hint_is_as_good_as_before_and_cheap() -> None:
    known = [f"tool_{n}" for n in range(500)] + ["send_mail", "calculator", "instructions"]
    assert did_you_mean("sned_mail", known) == "; did you mean 'send_mail'?"
    assert did_you_mean("calcualtor", known) == "; did you mean 'calculator'?"
    assert did_you_mean("instruction", known) == "; did you mean 'instructions'?"
    assert did_you_mean("zzz", known) == ""
    known += ["mcp__docs__search", "github_create_issue"]
    assert did_you_mean("search", known) == "; did you mean 'mcp__docs__search'?"
    assert did_you_mean("Create_Issue", known) == "; did you mean 'github_create_issue'?"
    assert did_you_mean("the_calculator_tool", known) == "; did you mean 'calculator'?"
    with counted() as work:
        did_you_mean("ab" * 500, known)
    assert work.calls < 10_000


async def test_no_more_tools_are_looked_for_than_faults_are_named() -> None:
    async with world() as api:
        tools = [f"nothing_{n}" for n in range(128)]
        answer = await api.client.post("/v1/runs", json={**BODY, "agent": {**AGENT, "tools": tools}})
        problem = assert_problem(answer, 422, "unknown_tool")
        assert len(problem["errors"]) == limit_of("faults")


def test_few_of_many_tools_are_listed() -> None:
    names = [f"tool_{n:02}" for n in range(40)]
    assert some_of(names) == f"{', '.join(names[:10])} and 30 more"
    assert (some_of(names[:10]), some_of([])) == (", ".join(names[:10]), "")


async def test_a_history_says_which_limit_it_is_beyond() -> None:
    calls = [{"id": f"c{n}", "name": "t"} for n in range(limit_of("message_calls") + 1)]
    results = [{"role": "tool", "call_id": call["id"], "content": "x"} for call in calls]
    async with world() as api:
        told = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": calls}, *results]
        answer = await api.client.post("/v1/runs", json={**BODY, "input": told})
        problem = assert_problem(answer, 422, "invalid_history", "/input/1")
        assert "at most 128 tool_calls" in problem["errors"][0]["message"]
        long = {"role": "assistant", "tool_calls": [{"id": "c", "name": "t" * 129}]}
        told = [{"role": "user", "content": "x"}, long, {"role": "tool", "call_id": "c", "content": "x"}]
        answer = await api.client.post("/v1/runs", json={**BODY, "input": told})
        assert "1 to 128 characters" in assert_problem(answer, 422, "invalid_history")["errors"][0]["message"]


async def test_a_header_may_name_so_many_media_types() -> None:
    async with world() as api:
        many = ",".join(["application/json"] * (limit_of("accept") + 1))
        assert_problem(await api.client.get("/v1/runs", headers={"Accept": many}), 406, "not_acceptable")
        fine = ",".join(["text/plain"] * (limit_of("accept") - 1) + ["application/json"])
        assert (await api.client.get("/v1/runs", headers={"Accept": fine})).status_code == 200


async def test_a_query_may_have_so_many_parameters() -> None:
    before = exceeded["parameters"]
    async with world() as api:
        problem = assert_problem(
            await api.client.get("/v1/runs?" + "&" * limit_of("parameters")), 400, "malformed_request"
        )
        assert str(limit_of("parameters")) in problem["detail"]
    assert exceeded["parameters"] == before + 1


async def test_a_page_of_long_events_is_short() -> None:
    async with world(SETTINGS.model_copy(update={"max_body": 1 << 20})) as api:
        run = await api.submit()
        lease = await api.claim(run)
        for _ in range(80):
            await api.say(lease, "x" * 60_000)
        seen = pages = after = 0
        while True:
            answer = await api.client.get(
                f"/v1/runs/{run['id']}/events?limit=1000&after={after}", headers={"Accept": "application/json"}
            )
            assert len(answer.content) < limit_of("answer_bytes")
            page = answer.json()
            seen, pages, after = seen + len(page["data"]), pages + 1, page["next_after"]
            if not page["has_more"]:
                break
        assert seen == (await api.read(run))["last_event_id"]
        assert pages > 1
