"""Tools that a file declares, on real processes: what requests and tasks of another Celery application have beside the
cases of every source (test_every_source.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from features.stack.redis_server import RedisServer
from palaver.store.reading.events import StoredEvent
from tests.process.cluster import Cluster
from tests.process.shop_workers import Shop
from tests.waiting import eventually

pytestmark = pytest.mark.process

_SOURCES = """
[celery.shop]
app = "tests.process.shop:app"
timeout = 8

[celery.shop.tasks.pay_back]
task = "tests.process.shop.refund"
terminate = true

[celery.shop.tasks.refuse]
task = "tests.process.shop.refuse"

[celery.shop.tasks.insist]
task = "tests.process.shop.insist"

[celery.silent]
broker_env = "SHOP_BROKER"
backend = "redis://127.0.0.1:{port}/1"

[celery.silent.tasks.pay_silently]
task = "tests.process.shop.refund"
queue = "silent"
parameters.properties = {{ order = {{ type = "string" }}, seconds = {{ type = "number" }} }}

[http.palaver]
base_url = "{url}"

[http.palaver.tools.get_tools]
path = "/v1/{{what}}"
answer = "/data/0/name"
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop with both of its workers."""
    folder = tmp_path_factory.mktemp("shop")
    redis = RedisServer(data_dir=folder / "redis")
    redis.start()
    shop = Shop(folder, redis, {})
    try:
        shop.start("celery")
        shop.start("silent", SHOP_SILENT="1", SHOP_BACKEND=f"redis://127.0.0.1:{redis.port}/1")
        yield shop
    finally:
        shop.close()
        redis.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, shop: Shop) -> Iterator[Cluster]:
    """A stack whose tools are tasks of the shop, and requests to its own API."""
    folder = tmp_path_factory.mktemp("stack")
    sources = folder / "tools.toml"
    environment = {"PALAVER_TOOL_SOURCES": str(sources), **shop.environment}
    cluster = Cluster(folder, environment=environment)
    sources.write_text(_SOURCES.format(port=shop.redis.port, url=cluster.stack.url))
    with cluster:
        yield cluster


def _submitted(stack: Cluster, tool: str, **arguments: Any) -> str:
    return stack.submit("tool-1", f"[[args {json.dumps(arguments)}]]", tools=[tool])


def _answer(stack: Cluster, run_id: str) -> StoredEvent:
    assert stack.ended(run_id).status == "completed"
    (finished,) = (event for event in stack.events(run_id) if event.type == "tool.finished")
    return finished


def _told(stack: Cluster, run_id: str) -> str:
    return str(_answer(stack, run_id).data["message"]["content"])


def test_a_request_to_a_service_is_a_call(stack: Cluster) -> None:
    assert _told(stack, _submitted(stack, "get_tools", what="tools"))
    refused = _answer(stack, _submitted(stack, "get_tools", what="../v1/tools"))
    assert refused.data["error"]["class"] == "not_found"
    assert refused.data["message"]["content"].startswith("the service answered HTTP 404: ")


def test_the_result_of_a_task_is_the_answer_of_its_call(stack: Cluster, shop: Shop) -> None:
    run_id = _submitted(stack, "pay_back", order="one")
    assert _told(stack, run_id) == '{"refunded": "one"}'
    (task,) = shop.begun("one")
    assert task.startswith(f"palaver:{run_id}:1:")


def test_what_a_task_raises_and_its_own_retries_are_seen(stack: Cluster) -> None:
    refused, insisted = _submitted(stack, "refuse", order="two"), _submitted(stack, "insist", order="three")
    assert _told(stack, refused) == "the task failed: ValueError: two was never paid"
    assert _told(stack, insisted) == "2"


def test_an_application_that_does_not_report_is_asked_for_its_results(stack: Cluster, shop: Shop) -> None:
    assert _told(stack, _submitted(stack, "pay_silently", order="four")) == '{"refunded": "four"}'
    assert len(shop.begun("four")) == 1


def test_a_task_that_somebody_revokes_is_in_doubt(stack: Cluster, shop: Shop) -> None:
    run_id = _submitted(stack, "pay_back", order="six", seconds=7)
    (task,) = eventually(lambda: shop.begun("six"))
    shop.app.control.revoke(task, terminate=True)
    assert _told(stack, run_id) == "The task was revoked. It may or may not have taken effect."


def test_a_worker_of_theirs_that_is_killed_is_noticed_by_the_time_of_the_call(stack: Cluster, shop: Shop) -> None:
    run_id = _submitted(stack, "pay_back", order="nine", seconds=7)
    eventually(lambda: shop.begun("nine"))
    shop.kill("celery")
    shop.start("celery")
    assert (
        _told(stack, run_id) == "pay_back took longer than 8 s, and was revoked. It may or may not have taken effect."
    )
    assert len(shop.begun("nine")) == 1
