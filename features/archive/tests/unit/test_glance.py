"""What `GET /readyz` and `GET /v1/queues` say of the archive: it keeps no request away, and no probe waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError

from features.archive import glance
from features.archive.archiver import Archiver
from features.archive.backlog import Backlog
from features.archive.database import Database
from features.archive.errors import SLOW
from features.stack.ports import free_port
from tests.unit.api_world import World, world
from tests.unit.two_tenants import asking_as, tenants


async def told(api: World) -> Any:
    """What both say, which is the same."""
    ready, queues = await api.client.get("/readyz"), await api.client.get("/v1/queues")
    assert (ready.status_code, queues.status_code) == (200, 200)
    shown, other = ready.json()["archive"], queues.json()["archive"]
    assert {**other, "oldest_seconds": shown["oldest_seconds"]} == shown
    return shown


async def test_without_an_archive_nothing_is_said() -> None:
    async with world() as api:
        for path in ("/readyz", "/v1/queues"):
            assert "archive" not in (await api.client.get(path)).json()


async def test_one_that_answers_says_how_much_it_has_and_lacks(
    tmp_path: Path, archive_at: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "_FRESH", 0.0)
    database = Database.of(archive_at(f"sqlite:///{tmp_path}/archive.db"))
    async with world() as api:
        (unknown := await told(api)).pop("last_error_at")
        assert "palaver archive migrate" in unknown["away"]
        assert unknown["conversations"] is None
        await database.migrate()
        await api.meet_worker()
        await api.finish(await api.submit(input="hello"))
        behind = await told(api)
        assert (behind["away"], behind["waiting"], behind["runs"]) == (None, 1, 0)
        assert behind["last_error"] == unknown["away"]
        await Archiver(api.store.part(Backlog), database).look()
        there = await told(api)
        assert (there["waiting"], there["oldest_seconds"], there["conversations"], there["runs"]) == (0, 0.0, 1, 1)
        assert (there["entries"] > 1, there["bytes"] > 4096) == (True, True)
    await database.close()


async def test_one_that_is_away_is_said_to_be_and_the_api_is_ready(archive_at: Callable[[str], str]) -> None:
    archive_at(f"postgresql://palaver:a-secret@127.0.0.1:{free_port()}/app")
    async with world() as api:
        await api.meet_worker()
        await api.finish(await api.submit(input="hello"))
        away = await told(api)
        assert away["away"] == away["last_error"] == "nothing listens at its address"
        assert (away["waiting"], away["bytes"]) == (1, None)
        assert away["last_error_at"] is not None
        assert "a-secret" not in (await api.client.get("/readyz")).text


async def test_a_tenant_is_told_nothing_of_it(tmp_path: Path, archive_at: Callable[[str], str]) -> None:
    archive_at(f"sqlite:///{tmp_path}/archive.db")
    async with tenants() as api:
        assert "archive" not in (await api.client.get("/readyz")).json()
        with asking_as(api, "acme"):
            assert "archive" not in (await api.client.get("/readyz")).json()
        with asking_as(api, "default"):
            assert "archive" in (await api.client.get("/readyz")).json()


async def test_many_probes_are_one_look_and_none_waits_for_a_database_that_hangs(
    archive_at: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_at(f"sqlite:///{tmp_path}/archive.db")
    goes_on, asked = asyncio.Event(), list[None]()

    async def size(self: Database) -> Mapping[str, int]:
        asked.append(None)
        await goes_on.wait()
        return {"conversations": 7}

    monkeypatch.setattr(Database, "size", size)
    monkeypatch.setattr(glance, "_PATIENCE", 0.05)
    async with world() as api:
        states = await asyncio.gather(*(api.store.memories.state() for _ in range(50)))
        assert {state.away for state in states if state} == {SLOW}
        assert (len(states), len(asked)) == (50, 1)
        # Nor does any that comes later.
        assert (await told(api))["away"] == SLOW
        goes_on.set()
        monkeypatch.setattr(glance, "_PATIENCE", 60.0)
        there = await told(api)
        assert (there["away"], there["conversations"], there["last_error"]) == (None, 7, SLOW)
        assert len(asked) == 1
        monkeypatch.setattr(glance, "_FRESH", 0.0)
        await told(api)
        assert len(asked) == 3


async def test_a_look_that_redis_did_not_answer_is_none(tmp_path: Path, archive_at: Callable[[str], str]) -> None:
    archive_at(f"sqlite:///{tmp_path}/archive.db")
    async with world() as api:
        api.server.connected = False
        with pytest.raises(ConnectionError):
            await api.store.memories.state()
        api.server.connected = True
        assert (await told(api))["waiting"] == 0
