"""What `import palaver` offers, and what it costs."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import palaver
from palaver.events import EVENTS, Event
from tests.pages import syntax
from tests.scripted_api import COMPLETED, RUN_ID, ScriptedAPI, action_object, answer, run_object
from tests.waiting import PATIENCE

PUBLIC = (
    "APIError", "AgentSpec", "Approvals", "AsyncPalaver", "Budget", "BulkResult", "ClientError", "ClientTool",
    "ConfigurationError", "Conflict", "ConnectionFailed", "Conversation", "ConversationMessage", "ErrorClass",
    "Event", "Exported", "FilePart", "Identity", "ImagePart", "ListedModel", "Message", "MountedApi", "NotFound",
    "Palaver", "PalaverError", "PendingAction", "RetryPolicy", "RetryableToolError", "Rule", "Run", "RunFailed",
    "RunStatus", "StopReason", "StuckLimits", "TextPart", "TooManyRequests", "Tool", "ToolContext", "ToolError",
    "Unauthorized", "Unavailable", "Unprocessable", "Usage", "WaitTimeout", "asgi", "tool",
)  # fmt: skip
SERVER_ONLY = ("aiohttp", "celery", "flower", "kombu", "orjson", "redis", "starlette", "uvicorn")
CLI_ONLY = ("rich", "typer")


def in_the_base_install(program: str) -> subprocess.CompletedProcess[str]:
    """Run it where what the extras bring cannot be imported."""
    blocked = f"""
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {SERVER_ONLY + CLI_ONLY}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
    command = [sys.executable, "-c", f"{blocked}\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def in_a_fresh_process(program: str) -> str:
    """What it prints."""
    done = in_the_base_install(program)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_public_names_are_these() -> None:
    assert palaver.__all__ == list(PUBLIC)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PUBLIC)
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    assert name in dir(palaver)
    found = getattr(palaver, name)
    for each in EVENTS.values() if found is Event else (found,):
        assert inspect.getdoc(each), f"{each} has no docstring"


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Celery'"):
        _ = palaver.Celery  # type: ignore[attr-defined]


def test_type_checkers_see_the_names_where_they_are_loaded_from() -> None:
    stub = syntax(Path(f"{palaver.__file__}i"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    seen = {each.asname or "": node.module or "" for node in imports for each in node.names}
    assert sorted(name for name in seen if name != "__version__") == sorted(PUBLIC)
    for name, module in seen.items():
        assert getattr(palaver, name) is getattr(import_module(module), name)


def test_one_name_is_one_thing() -> None:
    """An error of the store and one of the SDK are not both called Conflict, for instance."""
    from palaver import client, errors

    doubled = [name for name in client.__all__ if hasattr(errors, name)]
    assert [name for name in doubled if getattr(client, name) is not getattr(errors, name)] == []


def test_import_palaver_loads_nothing_else() -> None:
    program = "before = set(sys.modules); import palaver; print(*sorted(set(sys.modules) - before))"
    loaded = {name.partition(".")[0] for name in in_a_fresh_process(program).split()}
    assert loaded <= {"palaver", *sys.stdlib_module_names}
    assert "asyncio" not in loaded


@pytest.mark.process
def test_every_public_name_works_with_httpx_and_pydantic_alone() -> None:
    program = "import palaver; print(*(name for name in palaver.__all__ if getattr(palaver, name)))"
    assert in_a_fresh_process(program).split() == list(PUBLIC)


@pytest.mark.process
def test_import_palaver_takes_a_fraction_of_the_clients_time() -> None:
    program = (
        "import time; a = time.process_time(); import palaver; b = time.process_time(); palaver.Palaver;"
        "print((b - a) / (time.process_time() - b))"
    )
    assert min(float(in_a_fresh_process(program)) for _ in range(3)) < 0.2


@pytest.mark.process
def test_the_sdk_works_with_httpx_and_pydantic_alone() -> None:
    with ScriptedAPI() as api:
        pending = run_object(pending_actions=[action_object(1, "client_tool", "look", arguments='{"where": "here"}')])
        api.on("POST", "/v1/runs", answer(pending))
        api.on("POST", f"/v1/runs/{RUN_ID}/input", answer(run_object(), 202))
        api.on("GET", f"/v1/runs/{RUN_ID}", answer(COMPLETED))
        program = f"""
from palaver import AgentSpec, Palaver, tool
@tool
def look(where: str) -> str:
    return where
with Palaver({api.url!r}) as client:
    print(client.run("hi", agent=AgentSpec(model="a/b"), client_tools=[look]).output)
"""
        assert in_a_fresh_process(program) == "four"
        [sent] = api.asked("POST", f"/v1/runs/{RUN_ID}/input")
        assert sent.body["items"][0]["output"] == "here"


def test_the_base_install_names_no_more_than_that() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert [re.split("[><=]", each)[0] for each in project["dependencies"]] == ["httpx", "pydantic"]


def test_the_command_without_its_extra_says_what_to_install() -> None:
    done = in_the_base_install("import palaver.cli; palaver.cli.main()")
    assert (done.returncode, done.stderr) == (2, "palaver: the command needs typer: pip install 'palaver[cli]'\n")


def test_a_module_without_its_extra_says_what_to_install() -> None:
    done = in_the_base_install("import palaver.delivery.deliveries")
    assert done.returncode == 1
    assert "palaver[server]" in done.stderr.splitlines()[-1]
