"""`palaver export` and `export` of the clients: what is written, once, also over several attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.client import Exported, NotFound
from tests.both_clients import EVENTS, RUN, RUNS, Call, both_clients
from tests.command_line import CommandResult
from tests.scripted_api import AT, CONVERSATION_ID, RUN_ID, Reply, ScriptedAPI, answer, problem, run_object

CONVERSATION = f"/v1/conversations/{CONVERSATION_ID}"
MESSAGES = f"{CONVERSATION}/messages"
OTHER_ID = "run_00" + "c" * 26
ENDED = {**run_object()["times"], "ended_at": AT}
WHOLE = ["message", "message", "conversation", "event", "event", "run"]


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("GET", RUN, answer(ended(RUN_ID)))
        server.on("GET", RUNS, runs(RUN_ID))
        server.on("GET", MESSAGES, page(message(2), after=2, more=True), page(message(5), after=6), page(after=6))
        server.on("GET", CONVERSATION, answer({"id": CONVERSATION_ID, "entries": 6, "later": "field"}))
        events(server, RUN_ID)
        yield server


def ended(run_id: str, **changes: Any) -> dict[str, Any]:
    return run_object("completed", stop_reason="end_turn", id=run_id, times=ENDED, **changes)


def runs(*ids: str, cursor: str | None = None) -> Reply:
    return answer({"data": [ended(each) for each in ids], "next_cursor": cursor, "has_more": bool(cursor)})


def page(*items: Any, after: int, more: bool = False) -> Reply:
    return answer({"data": items, "next_after": after, "has_more": more})


def message(position: int) -> dict[str, Any]:
    return {"position": position, "role": "user", "content": f"number {position}", "new_field": True}


def events(api: ScriptedAPI, run_id: str) -> None:
    """Two pages: a durable event and a token delta on the first one, the last event on the second."""
    kinds = [{"run_id": run_id, "seq": i, "at": AT, "type": kind, "data": {}} for i, kind in enumerate(
        ("run.created", "message.delta", "run.finished"), 1
    )]  # fmt: skip
    api.on("GET", f"/v1/runs/{run_id}/events", page(*kinds[:2], after=2, more=True), page(kinds[2], after=3))


def kinds(path: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()]


@both_clients
class TestExport:
    def test_all_that_is_known_of_a_run(self, api: ScriptedAPI, call: Call) -> None:
        found = call(api.url, "export", RUN_ID)
        assert [record["kind"] for record in found] == WHOLE
        assert {record["schema"] for record in found} == {1}
        assert [record["message"]["position"] for record in found[:2]] == [2, 5]
        assert {record["conversation_id"] for record in found[:2]} == {CONVERSATION_ID}
        assert found[2]["conversation"]["later"] == "field"
        assert [record["event"]["type"] for record in found[3:5]] == ["run.created", "run.finished"]
        assert found[5]["run"] == ended(RUN_ID)
        assert [seen.query.get("after") for seen in api.asked("GET", EVENTS)] == ["0", "2"]

    def test_a_filter_means_runs_that_have_ended_page_by_page(self, api: ScriptedAPI, call: Call) -> None:
        events(api, OTHER_ID)
        api.on("GET", RUNS, runs(RUN_ID, cursor="more"), runs(OTHER_ID))
        found = call(api.url, "export", tag="a", created_after=datetime(2026, 1, 1, tzinfo=UTC))
        assert [record["run"]["id"] for record in found if record["kind"] == "run"] == [RUN_ID, OTHER_ID]
        assert [record["kind"] for record in found].count("message") == 2
        first, second = api.asked("GET", RUNS)
        assert set(first.query["status"].split(",")) == {"cancelled", "completed", "expired", "failed", "incomplete"}
        assert (first.query["tag"], first.query["created_after"]) == ("a", "2026-01-01T00:00:00+00:00")
        assert second.query["cursor"] == "more"

    def test_what_was_exported_is_not_again(self, api: ScriptedAPI, call: Call) -> None:
        known = Exported()
        assert len(call(api.url, "export", exported=known)) == len(WHOLE)
        assert (RUN_ID in known, len(known), known.position(CONVERSATION_ID)) == (True, 1, 5)
        assert call(api.url, "export", exported=known) == []

        events(api, OTHER_ID)
        api.on("GET", RUNS, runs(OTHER_ID, RUN_ID))
        api.on("GET", MESSAGES, page(message(9), after=9))
        again = call(api.url, "export", exported=known)
        assert [record["kind"] for record in again] == ["message", *WHOLE[2:]]
        assert api.asked("GET", MESSAGES)[-1].query["after"] == "5"

    def test_what_is_not_taken_is_not_known(self, api: ScriptedAPI, call: Call) -> None:
        known = Exported()
        call(api.url, "export", exported=known, take=len(WHOLE))
        assert len(known) == 0

    def test_a_run_that_goes_on_is_exported_again(self, api: ScriptedAPI, call: Call) -> None:
        known = Exported()
        api.on("GET", RUN, answer(run_object()), answer(ended(RUN_ID)))
        statuses = [call(api.url, "export", RUN_ID, exported=known)[-1]["run"]["status"] for _ in range(2)]
        assert statuses == ["running", "completed"]

    def test_a_conversation_with_all_its_runs(self, api: ScriptedAPI, call: Call) -> None:
        found = call(api.url, "export", CONVERSATION_ID)
        assert [record["kind"] for record in found] == [*WHOLE[:3], *WHOLE[2:]]
        assert api.asked("GET", RUNS)[0].query == {"conversation_id": CONVERSATION_ID, "limit": "100"}

    def test_a_run_that_goes_meanwhile_is_left_out(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", RUNS, runs(OTHER_ID, RUN_ID))
        found = call(api.url, "export")
        assert [record["run"]["id"] for record in found if record["kind"] == "run"] == [RUN_ID]

    def test_what_is_not_there(self, api: ScriptedAPI, call: Call) -> None:
        with pytest.raises(NotFound):
            call(api.url, "export", OTHER_ID)
        with pytest.raises(ValueError, match="not both"):
            call(api.url, "export", RUN_ID, tag="a")


class TestCommand:
    def test_lines_on_standard_output(self, api: ScriptedAPI) -> None:
        said = CommandResult(api, "export", RUN_ID)
        assert (said.code, [record["kind"] for record in said.documents]) == (0, WHOLE)
        assert "exported 1 run\n" in said.err

    def test_a_filter(self, api: ScriptedAPI) -> None:
        assert (
            CommandResult(api, "export", "-s", "failed", "--tag", "a", "--since", "2h", "--older-than", "1h").code == 0
        )
        [seen] = api.asked("GET", RUNS)
        assert (seen.query["status"], seen.query["tag"]) == ("failed", "a")
        after, before = (datetime.fromisoformat(seen.query[name]) for name in ("created_after", "created_before"))
        assert timedelta(minutes=59) < before - after < timedelta(minutes=61)
        assert CommandResult(api, "export", "--since", "2026-01-31T12:00:00Z").code == 0
        given = datetime.fromisoformat(api.asked("GET", RUNS)[-1].query["created_after"])
        assert given == datetime(2026, 1, 31, 12, tzinfo=UTC)

    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            [RUN_ID, "--all"],
            [RUN_ID, "--tag", "a"],
            ["--all", "--tag", "a"],
            [RUN_ID, "--follow"],
            ["--since", "x"],
        ],
    )
    def test_what_cannot_be(self, api: ScriptedAPI, arguments: list[str]) -> None:
        assert CommandResult(api, "export", *arguments).code == 2
        assert api.seen == []

    def test_a_file_gets_what_it_does_not_have(self, api: ScriptedAPI, tmp_path: Path) -> None:
        path = tmp_path / "runs.jsonl"
        assert CommandResult(api, "export", "--all", "--to", str(path)).code == 0
        assert kinds(path) == WHOLE
        events(api, OTHER_ID)
        api.on("GET", RUNS, runs(OTHER_ID, RUN_ID))
        api.on("GET", MESSAGES, page(after=6))
        said = CommandResult(api, "export", "--all", "--to", str(path))
        assert (said.code, said.out) == (0, "")
        assert f"exported 1 run to {path}" in said.err
        assert kinds(path) == [*WHOLE, *WHOLE[2:]]
        assert api.asked("GET", MESSAGES)[-1].query["after"] == "5"

    @pytest.mark.slow
    def test_it_goes_on_after_any_byte(self, api: ScriptedAPI, tmp_path: Path) -> None:
        """Whatever an export that was killed had written, the next one completes it to the same file."""
        path = tmp_path / "runs.jsonl"
        CommandResult(api, "export", "--all", "--to", str(path))
        whole = path.read_bytes()
        for cut in range(0, len(whole), 233):
            path.write_bytes(whole[:cut])
            pages = page(message(2), after=2, more=True), page(message(5), after=6), page(after=6)
            api.on("GET", MESSAGES, *pages[2 if whole[:cut].count(b"\n") >= 3 else 0 :])
            events(api, RUN_ID)
            assert CommandResult(api, "export", "--all", "--to", str(path)).code == 0
            lines = [json.dumps(json.loads(line)) for line in path.read_text().splitlines()]
            assert set(lines) == {line.decode() for line in whole.splitlines()}, cut
            assert kinds(path)[-1] == "run"
            assert kinds(path).count("message") == 2
            assert kinds(path).count("event") == 2

    def test_an_api_that_goes_away_leaves_what_is_whole(self, api: ScriptedAPI, tmp_path: Path) -> None:
        path = tmp_path / "runs.jsonl"
        api.on("GET", RUNS, runs(RUN_ID, cursor="more"), problem(400, "invalid_cursor"))
        assert CommandResult(api, "export", "--all", "--to", str(path)).code == 2
        assert kinds(path) == WHOLE

    @pytest.mark.parametrize("text", ["hello", "hello\n", '{"a": 1}\n', '{"schema": 2, "kind": "run"}\n', "[]\n"])
    def test_no_other_file_is_touched(self, api: ScriptedAPI, tmp_path: Path, text: str) -> None:
        path = tmp_path / "notes.txt"
        path.write_text(text)
        said = CommandResult(api, "export", "--all", "--to", str(path))
        assert (said.code, path.read_text()) == (2, text)
        assert "something else in it" in said.err
        assert CommandResult(api, "export", "--all", "--to", str(tmp_path)).code == 2

    def test_following_looks_back_to_the_oldest_run_that_had_not_ended(
        self, api: ScriptedAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = {**ENDED, "created_at": "2026-01-01T00:00:00.500Z", "ended_at": None}
        unfinished = answer({"data": [run_object(times=old)], "next_cursor": None, "has_more": False})
        looks: list[float] = []

        def sleep(seconds: float) -> None:
            looks.append(seconds)
            if len(looks) == 2:
                raise KeyboardInterrupt
            api.on("GET", RUNS, runs())

        monkeypatch.setattr("palaver.cli.exporting.time.sleep", sleep)
        api.on("GET", RUNS, runs(RUN_ID), unfinished, runs(RUN_ID))
        path = tmp_path / "runs.jsonl"
        said = CommandResult(api, "export", "--all", "--to", str(path), "--follow", "--every", "5s")
        assert (said.code, kinds(path)) == (0, WHOLE)
        assert looks == [5.0, 5.0]
        first, second = api.asked("GET", RUNS)[:3], api.asked("GET", RUNS)[3:6]
        assert ["created_after" in seen.query for seen in first] == [False] * 3
        assert [seen.query["created_after"] for seen in second] == ["2026-01-01T00:00:00.499000+00:00"] * 3
        assert "running" in first[1].query["status"]
