"""The queues that tools name: what is a name, who may have one, and how workers and messages come by it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from celery import Celery

from palaver import tool
from palaver.cli.doing import lacked
from palaver.config.exits import EX_USAGE
from palaver.config.worker_options import check_options
from palaver.delivery.deliveries import QUEUE_NAMES, queue
from palaver.errors import ConfigurationError
from palaver.steps.leases import Delivery
from palaver.steps.wire import body_of, delivery_in, headers_of
from palaver.tools.declared import declarations_in
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import MODEL, QUEUES, TOOL, broker_queue, is_own_queue, kind_of, queue_in_broker
from tests.process.remote_tools import RemoteTools, Server
from workers.broker.transport import Amqp, consume_recovered_first
from workers.sources import Toolbox
from workers.sources.functions import Functions

NAMES = ("gpu", "4k", "a-b-", "q" * 32, "celery")
NO_NAMES = ("", "GPU", "-a", "a_b", "a.b", "a b", "gpu,big", "q" * 33, "a\n", "é", "model", "recovered")
"""Those that Palaver has itself among them."""
RUN, CONVERSATION = "run_00" + "1" * 26, "conv_00" + "2" * 26


@tool(queue="gpu")
def render(scene: str) -> str:
    """For a machine with a GPU."""
    return scene


@tool(queue="tools")
def ordinary() -> str:
    """Says what is so anyway."""
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_may_name_a_queue(name: str) -> None:
    assert tool(queue=name)(ordinary.call).declaration.queue == name
    assert queue_in_broker(broker_queue(name)) == name
    assert queue_in_broker(f"{broker_queue(name)}.recovered") == name
    assert kind_of(name) is TOOL


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_is_refused_in_a_sentence(name: str) -> None:
    assert not is_own_queue(name)
    with pytest.raises(
        ConfigurationError, match=r"tool ordinary: .* cannot be a queue of tools: its name has 1 to 32 of"
    ):
        tool(queue=name)(ordinary.call)
    if name not in QUEUES:
        assert queue_in_broker(f"tools.{name}") in (None, "tools")


def test_an_inline_tool_has_no_queue() -> None:
    with pytest.raises(
        ConfigurationError, match="it runs inside the model step and is in no queue: leave queue or inline"
    ):
        tool(queue="gpu", inline=True)(ordinary.call)


def test_a_toolbox_knows_the_queues_of_its_tools_whatever_their_source() -> None:
    assert Toolbox([Functions([render, ordinary])]).queues == ("gpu",)

    remote = RemoteTools(Server())
    remote.declarations = (Server.offers[0].model_copy(update={"queue": "GPU"}), Server.offers[1])
    with pytest.raises(ConfigurationError, match="tool look_up: 'GPU' cannot be a queue of tools"):
        Toolbox([remote])


def test_a_declaration_without_a_queue_is_one_of_an_older_worker() -> None:
    told = render.declaration.model_dump()
    del told["queue"]
    assert [each.queue for each in declarations_in(orjson.dumps([told]))] == [None]


def test_queues_of_kinds_are_called_the_same_in_the_broker() -> None:
    for name in QUEUES:
        assert queue_in_broker(broker_queue(name)) == name == broker_queue(name)
        assert queue_in_broker(f"{name}.recovered") == name
    assert [kind_of(name) for name in QUEUES] == [MODEL, TOOL]
    assert [queue_in_broker(name) for name in ("gpu", "celery", "model.gpu", "tools.", "tools..recovered")] == [
        None
    ] * 5


@pytest.mark.parametrize("name", ["tools.gpu", "tools.gpu.recovered"])
def test_a_delivery_of_such_a_queue_is_one_of_a_tool_step(name: str) -> None:
    delivery = Delivery(name, RUN, CONVERSATION, "3/call_9", 2)
    assert delivery.task_name == "palaver.tool_step"
    headers, body = headers_of(delivery), body_of(delivery).encode()
    assert delivery_in(name, headers, body) == delivery
    assert delivery_in("gpu", headers, body) is None
    assert delivery_in(name, {**headers, "task": "palaver.model_step"}, body) is None


def _app() -> Celery:
    app = Celery("a", amqp=Amqp, broker="redis://127.0.0.1:1/0")
    # Celery changes those that it is given.
    app.conf.update(task_queues=tuple(map(queue, QUEUE_NAMES)), task_create_missing_queues=False)
    return app


@pytest.mark.parametrize(
    ("asked", "consumed"),
    [
        ("gpu", ["tools.gpu.recovered", "tools.gpu"]),
        ("gpu,tools", ["tools.gpu.recovered", "tools.gpu", "tools.recovered", "tools"]),
        ("tools", ["tools.recovered", "tools"]),
        ("tools.gpu", ["tools.gpu.recovered", "tools.gpu"]),
    ],
)
def test_a_worker_consumes_the_queues_that_it_is_started_with(asked: str, consumed: list[str]) -> None:
    app = _app()
    app.amqp.queues.select(asked.split(","))

    class Worker:
        app: Any

    worker = Worker()
    worker.app = app
    consume_recovered_first(worker)
    assert [*app.amqp.queues.consume_from] == consumed
    declared, other = app.amqp.queues[consumed[0]], app.amqp.queues["tools"]
    assert (declared.routing_key, declared.durable) == (consumed[0], True)
    assert declared.queue_arguments == other.queue_arguments


def test_no_worker_consumes_what_is_no_queue() -> None:
    app = _app()
    with pytest.raises(KeyError):
        app.amqp.queues.select(["GPU"])


@pytest.mark.parametrize("queues", ["gpu", "gpu,tools", "tools"])
def test_a_tools_worker_takes_from_such_queues(queues: str) -> None:
    check_options("tools", ["-Q", queues, "-c", "2"])


@pytest.mark.parametrize(
    ("role", "queues", "said"),
    [
        (
            "tools",
            "GPU",
            "palaver tools takes from no queue 'GPU': a tool names it, as in @tool(queue='gpu')",
        ),
        ("tools", "gpu,", "palaver tools takes from no queue ''"),
        ("tools", "gpu,model", "palaver tools takes from no queue 'model'"),
        ("tools", "gpu, big", "palaver tools takes from no queue ' big'"),
        ("tools", ",".join(f"q{n}" for n in range(limit_of("tool_queues") + 1)), "takes from 32 queues at most"),
        ("worker", "gpu", "palaver worker takes from no queue 'gpu', but from 'model'"),
    ],
)
def test_a_worker_says_what_it_cannot_take_from(
    role: str, queues: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        check_options(role, ["-Q", queues])
    assert ended.value.code == EX_USAGE
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ("tools", "for tools alone there is palaver tools"),
        ("model", "would run no tool: name queues of tools, too, as in -Q model,tools"),
        ("model,GPU", "palaver worker takes from no queue 'GPU'"),
    ],
)
def test_a_worker_of_models_and_tools_takes_from_queues_of_both(
    queues: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    check_options("worker", ["--tools", "-Q", "model,gpu"])
    with pytest.raises(SystemExit) as ended:
        check_options("worker", ["--tools", "-Q", queues])
    assert ended.value.code == EX_USAGE
    assert said in capfd.readouterr().err


def test_people_are_told_what_to_start() -> None:
    assert lacked("queue:gpu") == "no worker takes from the queue gpu: `palaver tools -Q gpu`"
