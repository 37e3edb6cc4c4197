"""Every kind of step has its work, and a queue of its own."""

from __future__ import annotations

import pytest

from palaver.steps.retry import MODEL_CALL, TOOL_CALL
from palaver.steps.verdicts import Verdict
from palaver.vocabulary.step_kinds import KINDS, MODEL, QUEUES, TOOL, StepKind
from workers.steps.attempt import Attempt
from workers.steps.registry import handler_of, step
from workers.steps.step_functions import call_model, call_tool


def test_every_kind_has_its_work_and_a_queue_of_its_own() -> None:
    assert [handler_of(kind).kind for kind in KINDS] == list(KINDS)
    assert len({kind.name for kind in KINDS}) == len(QUEUES) == len(KINDS)


def test_the_decorator_names_the_work_of_a_kind_and_its_policy() -> None:
    model, tool = handler_of(MODEL), handler_of(TOOL)
    assert (model.function, model.retry) == (call_model, MODEL_CALL)
    assert (tool.function, tool.retry) == (call_tool, TOOL_CALL)


def test_a_kind_has_one_function() -> None:
    async def another(_: Attempt) -> Verdict:
        raise AssertionError

    with pytest.raises(ValueError, match="two functions for one kind of step: model"):
        step(MODEL, retry=MODEL_CALL)(another)
    assert handler_of(MODEL).function is call_model


def test_a_kind_without_a_function_says_so() -> None:
    with pytest.raises(LookupError, match="no function is the work of dream steps"):
        handler_of(StepKind("dream", queue="dreams"))
