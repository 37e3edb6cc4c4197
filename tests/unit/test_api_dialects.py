"""A dialect is mappings: beside ours, with its own names, errors and stream, it submits, watches and cancels."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.kit.dialects import Dialect, dialect_of
from api.native import NATIVE
from palaver.config.settings import Settings
from tests.pages import syntax
from tests.unit import toy_dialect
from tests.unit.api_world import BODY, RUN_ID, SETTINGS, LiveRequest, World, assert_problem, world
from tests.unit.toy_dialect import TOY
from tests.waiting import PATIENCE

CHORE = {"bot": "fake/echo", "say": "hello"}
GUARDED = SETTINGS.model_copy(update={"api_keys": Settings(redis_url="redis://x", api_keys="k" * 16).api_keys})


@asynccontextmanager
async def both(settings: Settings = SETTINGS) -> AsyncIterator[World]:
    """An API that speaks the toy dialect, too."""
    async with world(settings, dialects=(NATIVE, TOY)) as api:
        yield api


def assert_toy_error(answer: httpx.Response, status: int, code: str, *fields: str) -> None:
    """Check that it is that error, as the toy dialect shows errors."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/toy+json"
    assert answer.headers["toy-error"] == code
    assert answer.headers["x-request-id"]
    assert answer.json() == {"oops": code, "fields": list(fields)}


async def test_it_submits_watches_and_reads() -> None:
    async with both() as api:
        begun = await api.client.post("/toy/tasks", json=CHORE)
        assert begun.status_code == 201
        task = begun.json()
        assert task == {"task": task["task"], "busy": True, "said": None, "watch": f"/toy/tasks/{task['task']}/lines"}
        assert [each.run_id for each in api.publisher.deliveries] == [task["task"]]
        run = (await api.client.get(f"/v1/runs/{task['task']}")).json()
        assert run["agent"]["model"] == "fake/echo"

        live = LiveRequest(api.app, "GET", task["watch"])
        waiting = asyncio.create_task(api.client.get(f"/toy/tasks/{task['task']}?patience=10"))
        lease = await api.claim(run)
        await api.say(lease, "Hel", "lo")
        await api.finish(run, "Hello", lease=lease)
        assert (await asyncio.wait_for(waiting, PATIENCE)).json() == {**task, "busy": False, "said": "Hello"}
        await asyncio.wait_for(live.task, PATIENCE)
        lines = [json.loads(line) for line in live.body.splitlines() if line]
        last = (await api.read(run))["last_event_id"]
        assert [line[1:] for line in lines] == [["text", "Hel"], ["text", "lo"], ["end", ""]]
        assert lines[-1][0] == last

        seen = await api.client.get(task["watch"], headers={"Last-Event-ID": str(lines[0][0])})
        assert seen.headers["content-type"] == toy_dialect.LINES
        assert [json.loads(line) for line in seen.text.splitlines()] == lines[1:]
        assert (await api.client.get(task["watch"], headers={"Last-Event-ID": str(last)})).status_code == 204


async def test_it_cancels() -> None:
    async with both() as api:
        task = (await api.client.post("/toy/tasks", json=CHORE)).json()
        stopped = await api.client.post(f"/toy/tasks/{task['task']}/stop")
        assert (stopped.status_code, stopped.json()["busy"]) == (200, False)
        assert (await api.client.get(f"/v1/runs/{task['task']}")).json()["status"] == "cancelled"


async def test_what_is_wrong_is_said_in_its_words() -> None:
    async with both() as api:
        ask = api.client.post
        assert_toy_error(await ask("/toy/tasks", json={**CHORE, "bot": "nobody/x"}), 422, "unknown_provider", "bot")
        assert_toy_error(await ask("/toy/tasks", json={**CHORE, "say": " "}), 422, "empty_input", "say")
        assert_toy_error(await ask("/toy/tasks", json={"bot": "fake/echo"}), 422, "validation_error", "say")
        assert_toy_error(await ask("/toy/tasks", content=b"{"), 415, "unsupported_media_type")
        assert_toy_error(await ask(f"/toy/tasks/{RUN_ID}/stop"), 404, "run_not_found")
        done = await api.submit()
        await api.finish(done)
        assert_toy_error(await ask(f"/toy/tasks/{done['id']}/stop"), 409, "run_ended")


@pytest.mark.parametrize("root", ["", "/palaver"])
async def test_what_is_refused_before_a_route_is_found_is_said_in_the_words_of_the_path(root: str) -> None:
    async with both() as api:
        for path, check in ((f"{root}/toy/nothing", assert_toy_error), (f"{root}/v1/nothing", assert_problem),
                            (f"{root}/toys", assert_problem)):  # fmt: skip
            transport = httpx.ASGITransport(api.app, root_path=root)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                check(await client.get(path), 404, "not_found")
                check(await client.get(f"{path}?{'x' * 9000}"), 414, "uri_too_long")
                check(await client.get(path, headers={"Host": "evil.example"}), 403, "host_not_allowed")
                check(await client.get(path, headers={f"x-{n}": "x" for n in range(200)}), 431, "headers_too_large")
        assert_toy_error(await api.client.put("/toy/tasks"), 405, "method_not_allowed")
        assert (await api.client.put("/toy/tasks")).headers["allow"] == "POST"
        large = {**CHORE, "say": "x" * SETTINGS.max_body}
        assert_toy_error(await api.client.post("/toy/tasks", json=large), 413, "payload_too_large")
        assert_problem(
            await api.client.post("/v1/runs", json={**BODY, "input": large["say"]}), 413, "payload_too_large"
        )
        unknown = await api.client.get(f"/toy/tasks/{RUN_ID}?wait=1")
        assert_toy_error(unknown, 400, "unknown_parameter", "?wait")
        html = {"Accept": "text/html"}
        assert_toy_error(await api.client.get(f"/toy/tasks/{RUN_ID}", headers=html), 406, "not_acceptable")
        api.server.connected = False
        away = await api.client.post("/toy/tasks", json=CHORE)
        assert_toy_error(away, 503, "unavailable")
        assert int(away.headers["retry-after"]) > 0


async def test_it_wants_a_key_as_everything_does() -> None:
    async with both(GUARDED) as api:
        refused = await api.client.post("/toy/tasks", json=CHORE)
        assert_toy_error(refused, 401, "unauthenticated")
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert_toy_error(await api.client.get("/toy/healthz"), 401, "unauthenticated")
        known = {"Authorization": f"Bearer {'k' * 16}"}
        assert (await api.client.post("/toy/tasks", json=CHORE, headers=known)).status_code == 201


@pytest.mark.slow
async def test_it_is_in_the_document() -> None:
    async with both() as api:
        document = (await api.client.get("/openapi.json")).json()
    begin = document["paths"]["/toy/tasks"]["post"]
    assert begin["operationId"] == "toy_begin"
    assert begin["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/Chore")
    assert list(begin["responses"]["422"]["content"]) == ["application/toy+json"]
    assert begin["responses"]["422"]["content"]["application/toy+json"]["schema"]["$ref"].endswith("/ToyError")
    assert set(document["components"]["schemas"]) >= {"ToyError", "Problem", "Task", "Run"}
    lines = document["paths"]["/toy/tasks/{task}/lines"]["get"]
    assert list(lines["responses"]["200"]["content"]) == [toy_dialect.LINES]
    assert [each["name"] for each in lines["parameters"]] == ["task", "Last-Event-ID"]


def test_it_needs_neither_store_nor_workers_nor_our_dialect() -> None:
    nodes = list(ast.walk(syntax(Path(toy_dialect.__file__))))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    assert "api.kit.dialects" in names
    others = ("palaver.store", "workers", "api.native", "redis", "celery")
    assert not [name for name in names if name.startswith(others)]


def test_a_path_belongs_to_the_longest_prefix() -> None:
    def dialect(prefix: str) -> Dialect:
        return Dialect("x", prefix, toy_dialect.respond, TOY.errors)

    root, v1, deep = several = (dialect(""), dialect("/v1"), dialect("/v1/openai"))
    for path, owner in {"/": root, "/v1": v1, "/v1/x": v1, "/v10": root, "/v1/openai/x": deep, "/v1/openais": v1,
                        "": root, "*": root, "host:443": root}.items():  # fmt: skip
        assert dialect_of(path, several) is owner


def test_a_dialect_has_routes_below_its_prefix_only_and_one_has_none() -> None:
    with pytest.raises(ValueError, match="/elsewhere is not below /toy"):
        TOY.route("GET", "/elsewhere", scope="runs:read", tag="x", summary="x", answers={200: ("x", None)})
    with pytest.raises(ValueError, match="empty prefix"):
        create_app(SETTINGS, dialects=(TOY,))


def test_two_dialects_may_not_call_different_things_the_same() -> None:
    errors: dict[str, Any] = {"type": "object"}
    other = Dialect("other", "/other", toy_dialect.respond, type(TOY.errors)("application/json", "Problem", errors))
    with pytest.raises(ValueError, match="Problem"):
        create_app(dialects=(NATIVE, other)).openapi()
