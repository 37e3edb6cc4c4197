"""Pages of OpenHands' events cost what is on them, however long the conversation is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest

from palaver.schemas.models import Message
from palaver.vocabulary.ids import uuid_of
from palaver.vocabulary.limits import limit_of
from tests.cost.requests import AGENT
from tests.cost.work import counted
from tests.unit.api_world import World, world

_SAID: Final = limit_of("input_messages")


@dataclass
class Read:
    """What answering a request took."""

    calls: int
    scripts: int


async def _long(api: World, entries: int) -> str:
    """The number of a conversation with so many entries."""
    id = (await api.client.post("/v1/conversations", json={"agent": AGENT})).json()["id"]
    said = [Message(role="user", content=f"message {n}") for n in range(_SAID)]
    for _ in range(entries // _SAID):
        await api.store.history.append(id, said)
    return str(uuid_of(id))


async def _read(api: World, path: str, monkeypatch: pytest.MonkeyPatch) -> Read:
    run, scripts = api.store.scripts.run, 0

    async def noted(script: object) -> object:
        nonlocal scripts
        scripts += 1
        return await run(script)  # type: ignore[arg-type]

    with monkeypatch.context() as noting:
        noting.setattr(api.store.scripts, "run", noted)
        with counted() as work:
            answer = await api.client.get(path)
    assert answer.status_code == 200, answer.text
    return Read(work.calls, scripts)


async def test_a_page_costs_what_is_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = []
    for entries in (2_000, 10_000):
        async with world() as api:
            events = f"/openhands/api/conversations/{await _long(api, entries)}/events"
            newest = (await api.client.get(f"{events}/search?limit=50&sort_order=TIMESTAMP_DESC")).json()
            paths = [
                f"{events}/search?limit=50&sort_order=TIMESTAMP_DESC",
                f"{events}/search?limit=50&sort_order=TIMESTAMP_DESC&page_id={newest['next_page_id']}",
                f"{events}/search?limit=50&page_id={newest['next_page_id']}",
                f"{events}/search?limit=50",
                f"{events}/{newest['items'][-1]['id']}",
            ]
            costs.append([await _read(api, path, monkeypatch) for path in paths])
    for shorter, longer in zip(*costs, strict=True):
        assert longer.scripts == shorter.scripts
        assert longer.calls < 1.2 * shorter.calls, (shorter, longer)
