"""What the clients and ``palaver batch`` do about batches."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from features.batches import commands as batches
from palaver.client import Conflict
from palaver.client.parts import Item, parts_of
from palaver.schemas.batches import BatchItem
from palaver.schemas.models import AgentSpec
from tests.both_clients import Call, async_client
from tests.command_line import CommandResult
from tests.scripted_api import Reply, ScriptedAPI, answer, problem
from tests.unit.test_text_files import Encode, written

BATCH = "/v1/batches/batch_1"


def batch(state: str = "done", completed: int = 2, **totals: Any) -> dict[str, Any]:
    """A batch as the API answers it."""
    total = {
        "agent": "a", "ended": {"completed": completed}, "cost_usd": 0.02, "input_tokens": 7, "output_tokens": 4,
        "seconds": 1.5, "scored": 0, "passed": 0,
    }  # fmt: skip
    return {
        "id": "batch_1", "name": "matrix", "state": state, "items": 2, "cells": 2, "begun": 2, "in_flight": 0,
        "ended": completed, "totals": [{**total, **totals}], "created_at": "2026-11-01T00:00:00Z", "created_by": None,
    }  # fmt: skip


def result(cell: int) -> dict[str, Any]:
    """A result as the API answers it."""
    return {
        "cell": cell, "item": str(cell), "agent": "a", "repeat": 1, "attempt": 1, "status": "completed",
        "run_id": f"run_{cell}", "output": "-1", "verdict": {"pass": True},
    }  # fmt: skip


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedAPI]:
    monkeypatch.setattr(batches, "_EVERY", 0.01)
    with ScriptedAPI() as server:
        server.on("POST", "/v1/batches", answer(batch("running"), 201))
        server.on("POST", f"{BATCH}/items", answer(batch("running")))
        server.on("GET", BATCH, answer(batch()))
        server.on("GET", "/v1/batches", answer({"data": [batch()], "next_cursor": None, "has_more": False}))
        page = {"data": [result(0)], "next_after": 1, "has_more": True}
        server.on("GET", f"{BATCH}/results", answer(page), answer({**page, "data": [result(1)], "next_after": None}))
        for verb, state in (("cancel", "cancelling"), ("retry", "running")):
            server.on("POST", f"{BATCH}/{verb}", answer(batch(state)))
        server.on("DELETE", BATCH, Reply(204))
        yield server


@async_client
def test_any_number_of_items_is_sent_in_parts(api: ScriptedAPI, call: Call) -> None:
    agents = [AgentSpec(model="fake/tool-1"), "support@7"]
    made = call(api.url, "create_batch", agents, (f"case {n}" for n in range(450)), repeats=2, scorer="judge")
    assert made.state == "running"
    first, second, third = api.seen
    assert first.body["agents"] == [{"model": "fake/tool-1"}, "support@7"]
    assert (first.body["repeats"], first.body["scorer"], first.body["complete"]) == (2, "judge", False)
    assert len(first.body["items"]) == 200
    assert "idempotency-key" in first.headers
    sent = [(each.body["offset"], len(each.body["items"]), each.body["complete"]) for each in (second, third)]
    assert sent == [(200, 200, False), (400, 50, True)]


@async_client
def test_a_list_that_no_batch_has_room_for_is_refused_before_any_of_it_runs(api: ScriptedAPI, call: Call) -> None:
    with pytest.raises(ValueError, match="100,001 items are more than the 100,000"):
        call(api.url, "create_batch", ["a"], ["again"] * 100_001)
    assert api.seen == []


def test_the_command_refuses_a_million_lines_before_any_of_them_runs(api: ScriptedAPI, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('"again"\n' * 1_000_000)
    said = CommandResult(api, "batch", "run", str(cases), "--agent", "a")
    assert (said.code, api.seen) == (2, [])
    assert "1,000,000 items are more than the 100,000 that a batch may have" in said.err


def test_one_that_has_some_of_its_items_is_named_by_the_error(api: ScriptedAPI, tmp_path: Path) -> None:
    api.on("POST", f"{BATCH}/items", answer(batch("running")), problem(409, "batch_full"))
    cases = tmp_path / "cases.jsonl"
    cases.write_text('"again"\n' * 500)
    said = CommandResult(api, "batch", "run", str(cases), "--agent", "a")
    assert said.code == 2
    assert "batch_1 has the first 400 items" in said.err


def test_a_part_is_no_larger_than_a_request_may_be() -> None:
    items: list[Item] = [BatchItem(input="x" * 100_000, id="a"), {"input": "y" * 100_000}, "z" * 100_000]
    assert [len(part) for part in parts_of(items)] == [2, 1]
    assert list(parts_of(())) == []
    assert next(parts_of(items))[0]["id"] == "a"


@async_client
def test_one_is_read_with_its_results_and_changed(api: ScriptedAPI, call: Call) -> None:
    assert call(api.url, "batch", "batch_1").totals[0].ended == {"completed": 2}
    assert [each.id for each in call(api.url, "batches")] == ["batch_1"]
    assert [each.run_id for each in call(api.url, "batch_results", "batch_1")] == ["run_0", "run_1"]
    assert call(api.url, "cancel_batch", "batch_1").state == "cancelling"
    assert call(api.url, "retry_batch", "batch_1").state == "running"
    call(api.url, "delete_batch", "batch_1")
    api.on("DELETE", BATCH, problem(409, "batch_active"))
    with pytest.raises(Conflict):
        call(api.url, "delete_batch", "batch_1")


def test_the_command_runs_a_file_of_cases(api: ScriptedAPI, tmp_path: Path) -> None:
    cases, table = tmp_path / "cases.jsonl", tmp_path / "results.csv"
    cases.write_text('"first"\n\n{"input": "second", "id": "b"}\n')
    words = ("batch", "run", str(cases), "--agent", "a", "--agent", "b", "-r", "3", "--output", str(table))
    said = CommandResult(api, *words)
    assert said.code == 0, said.err
    assert said.out.splitlines()[1].split() == ["a", "2", "$0.0200", "11", "1.5"]
    assert api.seen[0].body == {
        "agents": ["a", "b"], "items": [{"input": "first"}, {"input": "second", "id": "b"}], "complete": True,
        "repeats": 3,
    }  # fmt: skip
    with table.open() as file:
        assert [(row["run_id"], row["output"]) for row in csv.DictReader(file)] == [("run_0", "'-1"), ("run_1", "'-1")]
    as_json = CommandResult(api, "batch", "run", str(cases), "--agent", "a", "--json")
    assert json.loads(as_json.out)["id"] == "batch_1"
    assert CommandResult(api, "batch", "run", str(cases), "--agent", "a", "--detach").out == "batch_1\n"
    cases.write_text("no JSON")
    assert "line 1" in CommandResult(api, "batch", "run", str(cases), "--agent", "a").err


@pytest.mark.parametrize("totals", [{"ended": {"completed": 1, "failed": 1}}, {"scored": 2, "passed": 1}])
def test_its_exit_code_says_whether_all_completed_and_passed(api: ScriptedAPI, totals: dict[str, Any]) -> None:
    assert CommandResult(api, "batch", "watch", "batch_1").code == 0
    api.on("GET", BATCH, answer(batch(**totals)))
    assert CommandResult(api, "batch", "watch", "batch_1").code == 1


def test_the_command_lists_shows_and_changes(api: ScriptedAPI) -> None:
    lines = CommandResult(api, "batch", "list").out.splitlines()
    assert lines[1].split()[:3] == ["batch_1", "done", "2/2"]
    assert "a" in CommandResult(api, "batch", "show", "batch_1").out
    written = CommandResult(api, "batch", "results", "batch_1").out.splitlines()
    assert [json.loads(line)["run_id"] for line in written] == ["run_0", "run_1"]
    assert CommandResult(api, "batch", "cancel", "batch_1").out == "batch_1 is cancelling\n"
    assert CommandResult(api, "batch", "retry", "batch_1").out == "batch_1 is running\n"
    assert CommandResult(api, "batch", "delete", "batch_1", "-y").out == "deleted batch_1\n"
    api.on("GET", "/v1/batches", answer({"data": [], "next_cursor": None, "has_more": False}))
    assert CommandResult(api, "batch", "list").err == "No batches.\n"


@written
def test_cases_are_read_whatever_program_wrote_the_file(encode: Encode, tmp_path: Path) -> None:
    (cases := tmp_path / "cases.jsonl").write_bytes(encode('"größe"\r\n\r\n{"input": "a\u2028b\x85c"}\r\n'))
    assert [*batches._cases(str(cases))] == ["größe", {"input": "a\u2028b\x85c"}]


def test_cases_that_are_no_text_are_said(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(typer.BadParameter, match="codec can't decode"):
        [*batches._cases(str(path))]
