"""Below a proxy's prefix: whatever the API answers with leads back to itself."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.unit.api_world import AGENT, BODY, World, world

ROOT = "/agents/palaver"


@asynccontextmanager
async def proxied(root: str) -> AsyncIterator[World]:
    """An API whose proxy takes ``root`` off; the server puts it back, as the protocol between them wants it."""
    async with world() as api:
        inner = api.client

        async def below(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
            await api.app(scope | {"root_path": root}, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=below), base_url=inner.base_url) as client:
            api.client = client
            yield api


@pytest.mark.parametrize("root", [ROOT, "/a b"])
async def test_what_is_taken_on_is_found_where_the_answer_says(root: str) -> None:
    async with proxied(root) as api:
        taken = await api.client.post(f"{root}/v1/runs", json=BODY)
        run = taken.json()
        seen = root.replace(" ", "%20")
        assert taken.headers["location"] == run["links"]["self"] == f"{seen}/v1/runs/{run['id']}"
        assert run["links"]["events"] == f"{seen}/v1/runs/{run['id']}/events"
        assert run["links"]["conversation"] == f"{seen}/v1/conversations/{run['conversation_id']}"
        for link in run["links"].values():
            assert (await api.client.get(link, headers={"Accept": "application/json"})).status_code == 200


async def test_every_location_and_every_next_page_is_below_the_root() -> None:
    async with proxied(ROOT) as api:
        first = (await api.client.post(f"{ROOT}/v1/runs", json=BODY)).json()
        await api.fail(first)
        await api.client.post(f"{ROOT}/v1/runs", json=BODY)
        conversation = first["links"]["conversation"]
        answers = [
            await api.client.post(f"{first['links']['self']}/retry", json={}),
            await api.client.post(f"{conversation}/fork", json={}),
            await api.client.post(f"{ROOT}/v1/conversations", json={"agent": AGENT}),
        ]
        for answer in answers:
            assert answer.status_code in {200, 201, 202}, answer.text
            assert answer.headers["location"].startswith(f"{ROOT}/v1/")
            assert (await api.client.get(answer.headers["location"])).status_code == 200
        for of in ("runs", "conversations"):
            page = await api.client.get(f"{ROOT}/v1/{of}?limit=1")
            [following] = re.findall("<(.*?)>", page.headers["link"])
            assert following.startswith(f"{ROOT}/v1/{of}?")
            assert (await api.client.get(following)).status_code == 200
        assert all(
            run["links"]["self"].startswith(ROOT) for run in (await api.client.get(f"{ROOT}/v1/runs")).json()["data"]
        )


async def test_the_next_request_may_come_another_way() -> None:
    async with world() as api:
        run = await api.submit()
        assert run["links"]["self"] == f"/v1/runs/{run['id']}"


@pytest.mark.process
def test_a_root_that_is_no_path_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "api", "--root-path", "agents"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "'agents' must begin with a /, such as /agents/palaver" in done.stderr
