"""The API below a path of a project: Django's sessions say who calls it, and all else is the project's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest

from features.django.tests import project

# isort: split
from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from palaver import Identity
from palaver.contrib.django import asgi
from tests.unit.mounted_site import served
from tests.waiting import PATIENCE

pytestmark = pytest.mark.process

BODY = {"agent": {"model": "fake/say-1"}, "input": "hello"}


def cookie_of(name: str) -> str:
    """The cookie of a browser in which a user has logged in."""
    browser = Client()
    browser.force_login(project.user(name))
    return f"sessionid={browser.cookies['sessionid'].value}"


@asynccontextmanager
async def browser(application: Any, name: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"cookie": await sync_to_async(cookie_of)(name)} if name else {}
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://testserver", headers=headers) as client:
        yield client


async def test_users_of_sessions_have_their_own_and_strangers_nothing(shop: None) -> None:
    site = asgi(get_asgi_application())
    async with browser(site) as stranger, browser(site, "ann") as ann, browser(site, "bob") as bob:
        assert (await stranger.get("/")).text == "a page of Django's"
        assert (await stranger.get("/agentsmith/v1/runs")).status_code == 404, "of Django"
        assert (await stranger.get("/agents/v1/runs")).status_code == 401
        assert (await stranger.get("/agents/healthz")).status_code == 200
        taken = await ann.post("/agents/v1/runs", json=BODY)
        run = taken.json()
        assert (taken.status_code, taken.headers["location"]) == (202, f"/agents/v1/runs/{run['id']}")
        assert run["submitted_by"] == f"user:{(await sync_to_async(project.user)('ann')).pk}"
        assert (await ann.get(run["links"]["self"])).status_code == 200
        assert (await bob.get(run["links"]["self"])).status_code == 404
        assert (await bob.get("/agents/v1/runs")).json()["data"] == []
        elsewhere = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        assert (await ann.post("/agents/v1/runs", json=BODY, headers=elsewhere)).status_code == 403
        assert (await ann.get("/agents/v1/runs", headers={"host": "evil.example"})).status_code == 400, "ALLOWED_HOSTS"
        await sync_to_async(project.user)("ann", is_active=False)
        assert (await ann.get(run["links"]["self"])).status_code == 401
        await sync_to_async(project.user)("ann", is_active=True)


async def test_a_session_of_an_older_secret_stays_one(shop: None) -> None:
    async with browser(asgi(get_asgi_application()), "ann") as ann:
        with override_settings(SECRET_KEY="a newer one", SECRET_KEY_FALLBACKS=["of tests"]):
            for _ in range(2):
                assert (await ann.get("/agents/v1/caller")).status_code == 200
        with override_settings(SECRET_KEY="another one"):
            assert (await ann.get("/agents/v1/caller")).status_code == 401


async def test_a_hook_says_who_users_are_and_another_who_callers_are(shop: None) -> None:
    with override_settings(PALAVER={"IDENTITY": "features.django.tests.site.by_name"}):
        site = asgi(get_asgi_application(), path="inner/agents")
        async with browser(site, "carl") as carl, browser(site, "dora") as dora, browser(site, "2nd") as stranger:
            run = (await carl.post("/inner/agents/v1/runs", json=BODY)).json()
            assert run["submitted_by"] == "user:carl"
            assert (await dora.get(run["links"]["self"])).status_code == 200, "of one tenant"
            assert (await stranger.get(run["links"]["self"])).status_code == 401
    with override_settings(PALAVER={"IDENTITY": "features.django.tests.site.nothing"}):
        async with browser(asgi(get_asgi_application()), "carl") as carl:
            with pytest.raises(ImproperlyConfigured, match="nothing"):
                await carl.get("/agents/v1/runs")
    own = asgi(get_asgi_application(), identity=lambda connection: Identity("user:zoe", "shop"))
    async with browser(own) as zoe:
        assert (await zoe.get("/agents/v1/caller")).json()["name"] == "user:zoe"
    with pytest.raises(ValueError, match="/agents/"):
        asgi(get_asgi_application(), path="/")


async def test_it_starts_with_the_server_and_sockets_are_of_users(shop: None) -> None:
    site, chat = asgi(get_asgi_application()), str(uuid4())
    cookie = await sync_to_async(cookie_of)("ann")
    async with served(site) as address, browser(site, "ann") as ann:
        made = await ann.post("/agents/v1/conversations", json={"id": chat, "agent": BODY["agent"]})
        assert made.status_code == 201
        url = f"ws://{address}/agents/openhands/sockets/events/{chat}"
        for headers, status in (({}, 401), ({"cookie": cookie, "host": "evil.example"}, 403)):
            with override_settings(ALLOWED_HOSTS=["127.0.0.1"]), pytest.raises(InvalidStatus) as refused:
                await connect(url, additional_headers=headers).__aenter__()
            assert refused.value.response.status_code == status
        with override_settings(ALLOWED_HOSTS=["127.0.0.1"]):
            async with connect(url, additional_headers={"cookie": cookie}) as socket:
                assert "full_state" in str(await asyncio.wait_for(socket.recv(), PATIENCE))
