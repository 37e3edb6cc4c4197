"""The publisher, on kombu's in-memory broker: what a worker would receive."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.transport.memory import Transport

from features.stack.ports import free_port
from palaver.config.brokers import kombu_url, tls_options
from palaver.delivery.deliveries import QUEUE_NAMES, QUEUES, Publisher, queue, transport_options
from palaver.delivery.publishing import LoopPublisher
from palaver.errors import ConfigurationError
from palaver.steps.leases import Delivery
from tests.unit.api_world import BODY, assert_problem, world

RUN, CONVERSATION = "run_00" + "1" * 26, "conv_00" + "2" * 26
MODEL = Delivery("model", RUN, CONVERSATION, "3", 1)
TOOL = Delivery("tools.recovered", RUN, CONVERSATION, "3/call_9", 2)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    Transport.global_state.clear()
    made = Publisher("memory://")
    yield made
    made.close()


def _received(name: str) -> list[Any]:
    found = []
    with Connection("memory://") as connection:
        channel = connection.default_channel
        bound: Any = QUEUES[name](channel)
        bound.declare()
        while message := bound.get(no_ack=True):
            found.append(message)
    return found


def test_a_delivery_is_a_celery_message_that_carries_ids_only(publisher: Publisher) -> None:
    publisher.publish([MODEL])
    [message] = _received("model")
    arguments, keywords, embedded = json.loads(message.body)
    assert (arguments, keywords) == ([RUN, CONVERSATION, "3", 1], {})
    assert embedded == {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")
    assert message.properties["correlation_id"] == f"{RUN}:3:1"
    assert message.delivery_info == {"exchange": "", "routing_key": "model"}
    facts = message.headers
    assert (facts["task"], facts["id"], facts["root_id"]) == ("palaver.model_step", f"{RUN}:3:1", None)
    assert (facts["argsrepr"], facts["kwargsrepr"]) == (f"{RUN} step 3", f"palaver show {RUN}")
    assert (facts["lang"], facts["ignore_result"], facts["retries"]) == ("py", True, 0)
    assert [facts[name] for name in ("eta", "expires", "group", "shadow")] == [None] * 4


def test_each_delivery_goes_to_its_queue(publisher: Publisher) -> None:
    publisher.publish([MODEL, TOOL, MODEL])
    assert publisher.depth("model") == 2
    assert [message.headers["task"] for message in _received("tools.recovered")] == ["palaver.tool_step"]
    assert [message.headers["id"] for message in _received("model")] == [f"{RUN}:3:1"] * 2
    assert publisher.depth("model") == publisher.depth("nothing.like.it") == 0


def test_one_of_a_queue_that_tools_name_goes_there(publisher: Publisher) -> None:
    publisher.publish([TOOL._replace(queue="tools.gpu"), TOOL._replace(queue="tools.gpu.recovered")])
    assert [publisher.depth(name) for name in ("tools.gpu", "tools", "model")] == [2, 0, 0]


async def test_publishing_soon_comes_in_order_and_closing_waits_for_it(publisher: Publisher) -> None:
    soon = LoopPublisher("memory://")
    sent = [Delivery("model", RUN, CONVERSATION, str(n), 1) for n in range(1, 501)]
    for delivery in sent:
        soon.publish_soon([delivery])
    await soon.close()
    assert await soon.depth("model") == 500
    assert [json.loads(message.body)[0][2] for message in _received("model")] == [each.step for each in sent]


async def test_a_closed_publisher_opens_again(publisher: Publisher) -> None:
    soon = LoopPublisher("memory://")
    for _ in range(2):
        soon.publish_soon([MODEL])
        await soon.close()
    assert publisher.depth("model") == 2


async def test_a_broker_that_is_away_is_told_by_ids_and_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    away = LoopPublisher(f"amqp://user:s3cret@127.0.0.1:{free_port()}//")
    with caplog.at_level(logging.WARNING, logger="palaver.delivery.publishing"):
        away.publish_soon([MODEL])
        await away.close()
    assert MODEL.task_id in caplog.text
    assert "s3cret" not in caplog.text


def test_publishers_and_workers_share_their_declarations() -> None:
    assert set(QUEUES) == set(QUEUE_NAMES) == {"model", "tools", "model.recovered", "tools.recovered"}
    for name, each in QUEUES.items():
        assert (each.name, each.routing_key, each.exchange.name, each.durable) == (name, name, "", True)
    assert queue("model") == QUEUES["model"]


def test_redis_gets_its_options_and_other_brokers_keep_theirs() -> None:
    for url in ("redis://localhost/0", "rediss://localhost/0"):
        options = transport_options(url)
        assert (options["ack_emulation"], options["priority_steps"]) == (False, [0])
        assert options["socket_timeout"] == 5
    assert transport_options("amqp://localhost") == {}


def test_rediss_verifies_unless_its_url_says_otherwise() -> None:
    assert tls_options("rediss://localhost/0") == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    assert tls_options("rediss://localhost/0?ssl_ca_certs=/etc/own%20ca.pem&ssl_check_hostname=false") == {
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
        "ssl_ca_certs": "/etc/own ca.pem",
        "ssl_check_hostname": False,
    }
    assert tls_options("rediss://localhost/0?ssl_cert_reqs=none") == {"ssl_cert_reqs": ssl.CERT_NONE}
    assert tls_options("redis://localhost/0") == tls_options("amqp://localhost//?heartbeat=30") == {}


def test_amqps_verifies_unless_its_url_says_otherwise() -> None:
    verified = {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None}
    assert tls_options("amqps://localhost//?heartbeat=30") == verified
    assert tls_options("amqps://localhost//?ssl_ca_certs=/own%20ca.pem") == verified | {"ca_certs": "/own ca.pem"}
    assert tls_options("amqps://localhost//?ssl_check_hostname=false") == {"cert_reqs": ssl.CERT_REQUIRED}
    assert tls_options("amqps://localhost//?ssl_cert_reqs=none") == {"cert_reqs": ssl.CERT_NONE}


def test_kombu_gets_its_own_spelling() -> None:
    assert kombu_url("amqps://h//?ssl_ca_certs=/ca.pem&heartbeat=30&ssl_keyfile=/k") == "amqps://h//?heartbeat=30"
    assert kombu_url("amqps://h//?ssl_ca_certs=/ca.pem") == "amqps://h//"
    assert kombu_url("unix://u:p%40@/run/redis.sock?db=2") == "redis+socket://u:p%40@/run/redis.sock?virtual_host=2"
    assert kombu_url("rediss://h/0?ssl_ca_certs=/ca.pem") == "rediss://h/0?ssl_ca_certs=/ca.pem"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://localhost/0?protocol=3", "`protocol`"),
        ("redis://localhost/0?ssl_ca_certs=/ca.pem", "`ssl_ca_certs`; only ssl_… with rediss://"),
        ("rediss://localhost/0?socket_timeout=1", "`socket_timeout`"),
        ("rediss://localhost/0?ssl_cert_reqs=perhaps", "'perhaps'"),
        ("amqp://localhost//?ssl_ca_certs=/ca.pem", "`ssl_ca_certs`; that is for amqps://"),
    ],
)
def test_what_a_broker_does_not_understand_is_told_at_start(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Publisher(url)


async def test_what_is_done_but_not_safely_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake server has no replica that could have it."""
    async with world() as api:
        failed, first, paused = [await api.submit() for _ in range(3)]
        await api.fail(failed)
        follows = await api.submit(agent=None, conversation_id=first["conversation_id"])
        await api.client.post(f"{paused['links']['self']}/input", json={"items": [{"type": "pause"}]})
        monkeypatch.setattr(api.store.scripts, "_wait", (("WAIT", 1, 100), 1))

        async def published(path: str, body: object = None) -> list[str]:
            api.publisher.deliveries.clear()
            problem = assert_problem(await api.client.post(path, json=body), 503, "not_durable")
            runs = [each.run_id for each in api.publisher.deliveries]
            assert problem.get("run_id") in (None, *runs)
            return runs

        (made,) = await published("/v1/runs", BODY)
        assert (await api.read({"links": {"self": f"/v1/runs/{made}"}}))["status"] == "queued"
        assert await published(f"{failed['links']['self']}/retry") == [(await api.read(failed))["retried_as"]]
        assert await published(f"{first['links']['self']}/cancel") == [follows["id"]]
        resume = {"items": [{"type": "resume"}]}
        assert await published(f"{paused['links']['self']}/input", resume) == [paused["id"]]
        # What is refused was not done.
        assert await published(f"{failed['links']['self']}/cancel") == []
