"""A thousand calls of another Celery application's tasks, while its workers, ours and its broker die at random."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from features.stack.redis_server import RedisServer
from palaver.errors import ErrorClass
from tests.chaos.seeds import scaled, seeded
from tests.process.cluster import Cluster
from tests.process.shop_workers import Shop
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

CALLS = 1_000
DEATHS = ("theirs", "ours") * 25
RESTARTS = 2
"""Of the broker of the application."""
AT_ONCE = 40
_SOURCES = """
[celery.shop]
app = "tests.process.shop:app"
timeout = 15
tasks.pay_back = { task = "tests.process.shop.refund" }
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop with a worker."""
    redis = RedisServer(data_dir=tmp_path / "shop-redis", options={"appendfsync": "always"})
    redis.start()
    shop = Shop(tmp_path, redis, {})
    try:
        shop.start("celery", "-c", "4")
        yield shop
    finally:
        shop.kill("celery")
        redis.close()


@pytest.fixture
def stack(tmp_path: Path, shop: Shop) -> Iterator[Cluster]:
    """A stack whose tools are tasks of the shop, on a loop."""
    sources = tmp_path / "tools.toml"
    sources.write_text(_SOURCES)
    environment = {"PALAVER_TOOL_SOURCES": str(sources), "PALAVER_TOOL_POOL": "loop", **shop.environment}
    with Cluster(tmp_path, environment=environment) as cluster:
        yield cluster


def _call(stack: Cluster, order: str, seconds: float) -> str:
    """Make one call; return what the model was told, or the class of the error that its run ended with."""
    text = f"[[args {json.dumps({'order': order, 'seconds': seconds})}]]"
    run_id = stack.submit("tool-1", text, tools=["pay_back"])
    run = stack.ended(run_id, within=180)
    if run.error is not None:
        return str(run.error["class"])
    assert run.status == "completed", f"{run_id}: {run.status}"
    (finished,) = (event for event in stack.events(run_id) if event.type == "tool.finished")
    return str(finished.data["message"]["content"])


def test_no_task_is_doubled_and_every_call_is_answered_or_said_to_be_unknown(stack: Cluster, shop: Shop) -> None:
    stack.expect_traceback("Error")
    _, chance = seeded()
    orders = [f"o{number}" for number in range(scaled(CALLS))]
    deaths = [*DEATHS[: scaled(len(DEATHS))], *(["broker"] * RESTARTS)]
    chance.shuffle(deaths)
    with ThreadPoolExecutor(AT_ONCE) as callers:
        calls = [callers.submit(_call, stack, order, chance.uniform(0, 0.3)) for order in orders]
        for number, whose in enumerate(deaths):
            due = (number + 1) * len(orders) // (len(deaths) + 2)
            eventually(lambda due=due: sum(call.done() for call in calls) >= due, within=180)  # type: ignore[misc]
            _let_die(whose, stack, shop)
        told = {order: call.result(timeout=300) for order, call in zip(orders, calls, strict=True)}
    begun = {order: len(shop.begun(order)) for order in orders}
    sorts = Counter("answered" if f'{{"refunded": "{order}"}}' == said else said for order, said in told.items())
    print(f"{len(orders)} calls, {len(deaths)} deaths: {sorts.most_common()}")
    assert [order for order, times in begun.items() if times > 1] == []
    for order, said in told.items():
        if said == f'{{"refunded": "{order}"}}':
            assert shop.ended(order), order
        elif "nothing was done" in said or "nothing was sent" in said:
            assert not begun[order], order
        elif said != ErrorClass.WORKER_LOST:  # it was waited for by three workers that were killed
            assert "may or may not have taken effect" in said, said


def _let_die(whose: str, stack: Cluster, shop: Shop) -> None:
    match whose:
        case "theirs":
            shop.kill("celery")
            shop.start("celery", "-c", "4")
        case "ours":
            stack.kill("tools")
            stack.start("tools")
        case "broker":
            shop.redis.stop()
            shop.redis.start()
