"""Every kind of step has its work, which is a Celery task, and a queue of its own or of another kind's workers."""

from __future__ import annotations

import re
from inspect import iscoroutinefunction
from typing import Any

import orjson
import pytest
from celery import Celery

from palaver.steps.leases import Delivery
from palaver.steps.retry import MODEL_CALL, TOOL_CALL
from palaver.steps.verdicts import Verdict
from palaver.steps.wire import delivery_in, headers_of, payload_of
from palaver.vocabulary.ids import new_conversation_id, new_run_id
from palaver.vocabulary.step_kinds import KINDS, MODEL, QUEUES, REMOTE, TOOL, StepKind, kind_of_step
from workers.steps import registry, step_functions
from workers.steps.attempt import Attempt
from workers.steps.outages import NotSettled
from workers.steps.registry import StepTask, handler_of, step
from workers.steps.request import StepRequest
from workers.steps.step import StepFailed
from workers.steps.step_functions import call_elsewhere, call_model, call_tool


@pytest.fixture(scope="module")
def app() -> Celery:
    """An app of the process, as that of workers is one."""
    return Celery("any", broker="memory://", set_as_current=False)


def test_every_kind_has_its_work_and_a_queue_of_its_own() -> None:
    assert [handler_of(kind).kind for kind in KINDS] == list(KINDS)
    assert len({kind.name for kind in KINDS}) == len(QUEUES) == len(KINDS)


@pytest.mark.parametrize(
    ("kind", "function", "policy"),
    [(MODEL, call_model, MODEL_CALL), (REMOTE, call_elsewhere, TOOL_CALL), (TOOL, call_tool, TOOL_CALL)],
)
def test_the_decorator_names_the_work_of_a_kind_and_its_policy(kind: StepKind, function: Any, policy: Any) -> None:
    handler = handler_of(kind)
    assert (handler.function, handler.retry) == (function, policy)


@pytest.mark.parametrize("kind", KINDS)
def test_the_decorator_makes_the_celery_task(app: Celery, kind: StepKind) -> None:
    task = app.tasks[kind.task]
    assert isinstance(task, StepTask)
    assert (task.name, task.acks_late, task.ignore_result) == (f"palaver.{kind.name}_step", True, True)
    assert (task.throws, task.Request) == ((StepFailed, NotSettled), StepRequest)
    assert iscoroutinefunction(task.run)


def test_no_other_task_is_made(app: Celery) -> None:
    # Another feature's task for applications of users is there once any test has imported it.
    made = {name for name in app.tasks if name.startswith("palaver.") and not name.startswith("palaver.contrib.")}
    assert made == {kind.task for kind in KINDS}


async def test_a_task_makes_an_attempt_in_its_process_and_a_child_in_its_loop(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    async def attempted(*asked: object) -> str:
        seen.append(asked)
        return "run is running"

    monkeypatch.setattr(registry, "make_attempt", attempted)
    monkeypatch.setattr(StepTask, "runtime", "this process's", raising=False)
    monkeypatch.setattr(StepTask, "in_child", lambda attempt, title: (title, attempt), raising=False)
    task = app.tasks[TOOL.task]
    assert await task.run("run", "conv", "1/c1", 1) == "run is running"
    title, attempt = task("run", "conv", "1/c1", 1)
    assert title == "run/1/c1"
    assert await attempt == "run is running"
    assert seen == [(handler_of, "this process's", TOOL, "run", "conv", "1/c1")] * 2


def test_a_kind_has_one_function() -> None:
    async def another(_: Attempt) -> Verdict:
        raise AssertionError

    with pytest.raises(ValueError, match="two functions for one kind of step: model"):
        step(MODEL, retry=MODEL_CALL)(another)
    assert handler_of(MODEL).function is call_model


def test_a_kind_without_a_function_says_so() -> None:
    with pytest.raises(LookupError, match="no function is the work of dream steps"):
        handler_of(StepKind("dream", queue="dreams"))


@pytest.mark.parametrize(
    ("queue", "name", "kind"),
    [("model", "3", MODEL), ("model", "3/c1", REMOTE), ("tools", "3/c1", TOOL), ("gpu", "3/c1", TOOL)],
)
def test_the_kind_of_a_step_follows_from_what_was_always_stored_of_it(queue: str, name: str, kind: StepKind) -> None:
    assert kind_of_step(queue, name) is kind


def test_a_call_that_others_do_looks_as_before_to_the_broker_and_to_older_workers() -> None:
    assert (REMOTE.name, REMOTE.queue, REMOTE.task) == ("model", "model", "palaver.model_step")
    delivery = Delivery(REMOTE.queue, new_run_id("00"), new_conversation_id(1), "3/c1", 1, "agent_x")
    body = orjson.dumps(payload_of(delivery))
    assert headers_of(delivery)["task"] == MODEL.task
    assert delivery_in(REMOTE.queue, headers_of(delivery), body) == delivery


def test_the_module_of_the_functions_says_their_tasks_and_queues() -> None:
    told = re.findall(r"^``(\w+)`` +``([\w.]+)`` +``(\w+)``$", step_functions.__doc__ or "", re.MULTILINE)
    kinds = {"MODEL": MODEL, "REMOTE": REMOTE, "TOOL": TOOL}
    assert told == [(name, kind.task, kind.queue) for name, kind in kinds.items()]
