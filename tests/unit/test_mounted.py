"""The API below a path of another application: its links, its streams and sockets, and its start."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.base import RequestResponseEndpoint
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

import palaver
from api.app import ApiApplication, create_app
from api.app.mounted import Mounted
from palaver.errors import ConfigurationError
from palaver.store import Store
from tests.store_server import Database
from tests.unit.api_world import (
    BODY,
    POLICIES,
    PROVIDERS,
    SETTINGS,
    LiveRequest,
    RecordingPublisher,
    assert_problem,
)
from tests.unit.mounted_site import DIALECTS, OTHER, SPEAKING, by_cookie, served, site
from tests.waiting import PATIENCE, aeventually


@pytest.mark.parametrize("path", ["/agents", "/inner/agents", "/a b/agents"])
async def test_links_lead_back_to_it_at_any_depth(path: str) -> None:
    below = path.replace(" ", "%20")
    async with site(path=path) as shop:
        shop.user("ann")
        taken = await shop.client.post(f"{below}/v1/runs", json=BODY)
        run = taken.json()
        assert taken.headers["location"] == run["links"]["self"] == f"{below}/v1/runs/{run['id']}"
        assert run["submitted_by"] == "user:ann"
        for link in run["links"].values():
            assert (await shop.client.get(link, headers={"Accept": "application/json"})).status_code == 200
        await shop.client.post(f"{below}/v1/runs", json=BODY)
        page = await shop.client.get(f"{below}/v1/runs?limit=1")
        [following] = re.findall("<(.*?)>", page.headers["link"])
        assert following.startswith(f"{below}/v1/runs?")
        assert len((await shop.client.get(following)).json()["data"]) == 1
        document = (await shop.client.get(f"{below}/openapi.json")).json()
        assert document["servers"] == [{"url": path}]
        lead = await shop.client.get(f"{below}/")
        assert (await shop.client.get(lead.headers["location"])).text.count("docs/swagger-ui") == 2
        shop.user(None)
        assert (await shop.client.get(f"{below}/healthz")).status_code == 200
        assert_problem(await shop.client.get(f"{below}/openapi.json"), 401, "unauthenticated")


async def test_a_stream_is_read_as_it_comes_and_ends_with_the_application() -> None:
    async with site() as shop:
        shop.user("ann")
        run = (await shop.client.post("/agents/v1/runs", json=BODY)).json()
        cookies = {"cookie": "user=ann", "accept": "text/event-stream"}
        async with shop.api.running():
            app = shop.client._transport.app  # type: ignore[attr-defined]
            stream = LiveRequest(app, "GET", run["links"]["events"], cookies)
            await stream.until(lambda body: b"run.created" in body)
            assert not stream.over
        await asyncio.wait_for(stream.task, PATIENCE)
        assert stream.over


def _with_middleware(api: Mounted) -> FastAPI:
    app = FastAPI()

    @app.middleware("http")
    async def timed(request: Request, call_next: RequestResponseEndpoint) -> Response:
        answer = await call_next(request)
        answer.headers["server-timing"] = "app"
        return answer

    app.add_middleware(GZipMiddleware, minimum_size=10)
    app.add_middleware(CORSMiddleware, allow_origins=["https://app.example"], allow_credentials=True)
    app.mount("/agents", api)
    return app


async def test_middleware_of_theirs_stands_in_front() -> None:
    settings = SETTINGS.model_copy(update={"cors_origins": ("https://app.example",)})
    page = {"cookie": "user=ann", "origin": "https://app.example", "sec-fetch-site": "cross-site"}

    async def watched() -> bool:
        return len(await shop.redis.pubsub_channels()) > 0

    async def unwatched() -> bool:
        return not await watched()

    async with (
        site(settings=settings, around=_with_middleware) as shop,
        served(shop.client._transport.app) as address,  # type: ignore[attr-defined]
        httpx.AsyncClient(base_url=f"http://{address}/agents", headers=page, timeout=PATIENCE) as client,
    ):
        taken = await client.post("/v1/runs", json=BODY)
        assert (taken.status_code, taken.headers["server-timing"]) == (202, "app")
        assert taken.headers.get_list("access-control-allow-origin") == ["https://app.example"]
        assert taken.headers["access-control-allow-credentials"] == "true"
        path = f"http://{address}{taken.json()['links']['events']}"
        async with client.stream("GET", path, headers={"accept": "text/event-stream"}) as told:
            lines = told.aiter_lines()
            while "run.created" not in await anext(lines):
                pass
            assert await watched()
        # Nothing is watched for a client that has gone.
        await aeventually(unwatched)


async def test_a_start_that_fails_is_said_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    def failing(make: Callable[[], ApiApplication]) -> Callable[[], ApiApplication]:
        def made() -> ApiApplication:
            tries.append(1)
            if len(tries) <= 2:
                raise ConfigurationError("PALAVER_PROVIDERS: there is no file shop.toml")
            return make()

        return made

    async with site(make=failing) as shop:
        shop.user("ann")
        problem = assert_problem(await shop.client.get("/agents/v1/runs"), 503, "unavailable")
        assert "shop.toml" not in problem["detail"]
        assert "the mounted API cannot start: PALAVER_PROVIDERS: there is no file shop.toml" in caplog.text
        with pytest.raises(ConfigurationError):
            async with shop.api.running():
                pass
        answers = await asyncio.gather(*(shop.client.get("/agents/v1/runs") for _ in range(5)))
        assert {answer.status_code for answer in answers} == {200}
        assert len(tries) == 3


def test_without_a_lifespan_it_ends_with_the_event_loop_and_starts_in_the_next() -> None:
    apps: list[ApiApplication] = []

    async def ask() -> None:
        server = Database()
        store = Store(server.client(), SETTINGS)

        def make() -> ApiApplication:
            apps.append(create_app(SETTINGS, store, RecordingPublisher(), PROVIDERS, POLICIES, DIALECTS))
            return apps[-1]

        api._make = make
        closing.append(asyncio.create_task(close(store)))
        transport = httpx.ASGITransport(Starlette(routes=[Mount("/agents", api)]))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.get("/agents/v1/runs")).status_code == 200
        assert not apps[-1].state.backend.closing.is_set()

    async def close(store: Store) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert api._running is not None
            await asyncio.wait([api._running.task])
            await store.close()

    api, closing = Mounted(lambda: apps[0], None), list[asyncio.Task[None]]()
    for _ in range(2):
        asyncio.run(ask())
        assert apps[-1].state.backend.closing.is_set()
    assert len(apps) == 2


async def test_a_server_may_have_it_without_an_application_around() -> None:
    async with site(None) as shop, served(shop.api) as address, httpx.AsyncClient() as client:
        assert shop.api._running is not None
        assert (await client.get(f"http://{address}/v1/runs")).status_code == 200
        assert (await client.get(f"http://{address}/openapi.json")).json().get("servers") is None


async def test_the_door_reads_the_environment_when_it_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("PALAVER_REDIS_URL", raising=False)
    with pytest.raises(TypeError, match="identity is a function"):
        palaver.asgi("user:1")  # type: ignore[arg-type]
    app = FastAPI()
    app.mount("/agents", palaver.asgi(identity=by_cookie))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        assert (await client.get("/agents/v1/runs")).status_code == 503
    assert "the mounted API cannot start: PALAVER_REDIS_URL is not set." in caplog.text
    monkeypatch.setattr("palaver.config.mounting.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=re.escape("needs starlette: pip install 'palaver[server]'")):
        palaver.asgi()


async def test_sockets_have_the_same_callers_on_any_server() -> None:
    async with (
        site(dialects=(*DIALECTS, SPEAKING)) as shop,
        served(shop.client._transport.app) as address,  # type: ignore[attr-defined]
    ):
        cookie = {"cookie": "user=ann"}
        for length in (5, 126, 70_000):
            url = f"ws://{address}/agents/speaking/{length}"
            async with connect(url, additional_headers=cookie, max_size=None) as socket:
                assert await asyncio.wait_for(socket.recv(), PATIENCE) == "x" * length
        for headers, status in (({}, 401), (cookie | {"origin": OTHER}, 403)):
            with pytest.raises(InvalidStatus) as refused:
                async with connect(url, additional_headers=headers):
                    pass
            assert refused.value.response.status_code == status
