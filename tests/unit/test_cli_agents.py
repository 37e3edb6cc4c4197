"""``palaver agents``, and runs of agents by their names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import RUNS, CommandResult
from tests.scripted_api import Reply, ScriptedAPI, answer, problem, run_object
from tests.unit.test_client_agents import AGENT, kept


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("PUT", AGENT, answer(kept(2)))
        server.on("GET", AGENT, answer(kept(2)))
        server.on("DELETE", AGENT, Reply(204))
        server.on("GET", "/v1/agents", answer({"data": [kept(2)], "next_cursor": None, "has_more": False}))
        server.on("POST", RUNS, answer(run_object("queued"), 202))
        yield server


def test_put(api: ScriptedAPI, tmp_path: Path) -> None:
    spec = tmp_path / "support.json"
    spec.write_text('{"model": "fake/tool-1"}')
    said = CommandResult(api, "agents", "put", "support", f"@{spec}", "--if-version", "1")
    assert (said.code, said.out) == (0, "support@2\n")
    assert (api.seen[0].body, api.seen[0].headers["if-match"]) == ({"model": "fake/tool-1"}, '"1"')
    assert CommandResult(api, "agents", "put", "support", "model").code == 2
    as_json = CommandResult(api, "agents", "put", "support", '{"model": "fake/tool-1"}', "--json")
    assert json.loads(as_json.out)["version"] == 2


def test_list_and_show(api: ScriptedAPI) -> None:
    listed = CommandResult(api, "agents", "list")
    assert listed.out.splitlines()[0].split() == ["AGENT", "VERSION", "CREATED", "MODEL", "TOOLS"]
    assert listed.out.splitlines()[1].split()[:2] == ["support", "2"]
    shown = CommandResult(api, "agents", "show", "support")
    assert "support@2" in shown.out
    assert '"model": "fake/tool-1"' in shown.out
    api.on("GET", "/v1/agents", answer({"data": [], "next_cursor": None, "has_more": False}))
    assert CommandResult(api, "agents", "list").err == "No agents.\n"


def test_delete(api: ScriptedAPI) -> None:
    assert CommandResult(api, "agents", "delete", "support", "--yes").out == "deleted support\n"
    api.on("DELETE", AGENT, problem(404, "agent_not_found", "There is no agent support on the server."))
    gone = CommandResult(api, "agents", "delete", "support", "--yes")
    assert gone.code != 0
    assert "There is no agent support" in gone.err


@pytest.mark.parametrize("name", ["support", "support@7"])
def test_a_run_of_one(api: ScriptedAPI, name: str) -> None:
    said = CommandResult(api, "run", "hello", "--agent", name, "--detach")
    assert said.code == 0, said.err
    assert api.seen[0].body["agent"] == name
