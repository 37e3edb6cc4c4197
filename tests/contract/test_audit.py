"""What was done with keys: added in order, bounded by number and age, read by tenant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver.config.settings import Settings
from palaver.store import Store
from palaver.store.access import audit
from palaver.store.redis import access_keys

YEAR = 365 * 86_400


async def operations(store: Store, tenant: str = "", **how: Any) -> list[str]:
    return [act.operation for act in await store.audit.read(tenant, **{"limit": 100} | how)]


async def test_an_act_is_as_it_was_added(store: Store, redis: Any) -> None:
    facts = {"run": "run_x", "count": 3, "items": ["approval"]}
    await store.audit.add(
        "acme00", "cancel", key="ann", key_id="k", operator=True, client="::1", request="req_1", status=200, facts=facts
    )
    (act,) = await store.audit.read("acme00", limit=10)
    assert act.model_dump(exclude={"id", "at"}) == {
        "operation": "cancel", "key": "ann", "key_id": "k", "operator": True, "client": "::1", "request": "req_1",
        "status": 200, "facts": facts,
    }  # fmt: skip
    assert abs(act.at - datetime.now(UTC)) < timedelta(seconds=60)
    assert await operations(store) == []
    assert 0 < await redis.ttl(access_keys.audit("acme00")) <= YEAR


async def test_acts_are_read_in_pages_and_from_a_time_on(store: Store) -> None:
    for number in range(5):
        await store.audit.add("", f"act-{number}", facts={})
    acts = await store.audit.read("", limit=2)
    assert [act.operation for act in acts] == ["act-0", "act-1"]
    assert await operations(store, after=acts[-1].id) == ["act-2", "act-3", "act-4"]
    assert await operations(store, since=datetime.now(UTC) + timedelta(days=1)) == []
    assert await operations(store, since=acts[0].at - timedelta(days=1)) == [f"act-{n}" for n in range(5)]
    assert (await operations(store, since=acts[0].at - timedelta(days=1), after=acts[0].id))[0] == "act-1"


async def test_what_is_too_old_is_not_shown(store: Store, redis: Any) -> None:
    await redis.xadd(access_keys.audit(""), {"act": b'{"operation": "old"}'}, id="1-1")
    await store.audit.add("", "new", facts={})
    assert await operations(store) == ["new"]
    assert await operations(store, after="1-1") == ["new"]


async def test_there_is_a_most_of_them(store: Store, redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_MOST", 10)
    for number in range(300):
        await store.audit.add("", f"act-{number}", facts={})
    assert await redis.xlen(access_keys.audit("")) < 200, "Redis lets go of a block of entries at once"
    assert (await operations(store, limit=300))[-1] == "act-299"


async def test_long_facts_are_left_out(store: Store) -> None:
    await store.audit.add("", "send_input", facts={"run": "run_x", "items": ["a" * 100] * 100, "text": "b" * 5_000})
    (act,) = await store.audit.read("", limit=1)
    assert act.facts == {"run": "run_x"}


async def test_nothing_is_kept_where_a_setting_says_so(redis: Any, settings: Settings) -> None:
    store = Store(redis, settings.model_copy(update={"audit_retention": 0.0}))
    await store.audit.add("", "cancel", facts={})
    assert await redis.keys("*") == []
    assert await operations(store) == []
