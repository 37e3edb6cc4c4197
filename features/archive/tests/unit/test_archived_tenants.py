"""Nothing of a tenant that is in the archive alone is shown to another one, or comes back for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from api.app import create_app
from api.app.installed import dialects_of
from features.archive.archiver import Archiver
from features.archive.backlog import Backlog
from features.archive.database import Database
from features.archive.tests.turns import evict
from palaver.store.redis import keys
from palaver.vocabulary.ids import uuid_of
from tests.unit.two_tenants import CANARY, Attack, Belongings, asking_as, operations_of, tenants

OPERATIONS = operations_of(create_app(dialects=dialects_of(("*",))).openapi())


@pytest.fixture
def url(tmp_path: Path, archive_at: Callable[[str], str]) -> str:
    return archive_at(f"sqlite:///{tmp_path}/archive.db")


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "attacker"), [("acme", "globex"), ("default", "globex"), ("acme", "default")])
async def test_what_is_anothers_is_answered_as_what_is_not_there(url: str, victim: str, attacker: str) -> None:
    async with tenants() as api:
        with asking_as(api, victim):
            await api.meet_worker()
            run = await api.submit(input=CANARY, tags=[CANARY])
            await api.finish(run, CANARY)
        database = Database.of(url)
        await database.migrate()
        await Archiver(api.store.part(Backlog), database).look()
        await database.close()
        await evict(api.redis, run["conversation_id"], run["id"])
        ids, numbers = Belongings(), Belongings()
        ids.values = {
            "run": [run["id"]],
            "conversation": [run["conversation_id"]],
            "response": [run["id"].replace("run_", "resp_")],
        }
        # In a body, a number is one for something new of one's own.
        numbers.values = {"number": [uuid_of(run["conversation_id"]).hex]}
        there = [(key, await api.redis.pttl(key), await api.redis.dump(key)) async for key in api.redis.scan_iter("*")]
        tried = 0
        for operation in OPERATIONS:
            places = [place for place in operation.places() if place.takes_id]
            for has, tries in ((ids, places), (numbers, [place for place in places if place.where == "path"])):
                attack = Attack(api, has, victim, attacker)
                await attack.on(operation, tries)
                tried += attack.tried
                # Without what the attacker has made of its own meanwhile.
                await api.redis.flushall()
                for key, left, value in there:
                    await api.redis.restore(key, max(0, left), value or b"", replace=True)
        assert tried > 100
        assert not await api.redis.exists(keys.run(run["id"]), keys.conversation(run["conversation_id"]))
        with asking_as(api, victim):
            assert (await api.client.get(f"/v1/runs/{run['id']}")).json()["output"] == CANARY
        await api.store.memories.close()


@pytest.mark.slow
async def test_actions_on_many_runs_reach_those_that_have_left(url: str) -> None:
    database = Database.of(url)
    await database.migrate()
    async with tenants() as api:
        archiver = Archiver(api.store.part(Backlog), database)
        with asking_as(api, "acme"):
            await api.meet_worker()
            runs = [await api.submit(input="hello", tags=["left"]) for _ in range(3)]
            for run in runs:
                await api.finish(run, "bye")
        await archiver.look()
        for run in runs:
            await evict(api.redis, run["conversation_id"], run["id"])
        with asking_as(api, "acme"):
            answer = (
                await api.client.post("/v1/runs/actions", json={"action": "delete", "filter": {"tag": "left"}})
            ).json()
            assert (answer["matched"], answer["done"], answer["skipped"]) == (3, 3, {})
            assert (await api.client.get("/v1/runs?tag=left")).json()["data"] == []
        await archiver.look()
        assert await database.runs([run["id"] for run in runs]) == []
        await api.store.memories.close()
    await database.close()
