"""``@step(KIND, retry=POLICY)`` makes a function the work of a kind of step: a Celery task, with a retry policy."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Final

from celery import Task, shared_task

from palaver.steps.retry import RetryPolicy
from palaver.vocabulary.step_kinds import KINDS, StepKind

from .attempt import Function, StepHandler
from .outages import NotSettled
from .request import StepRequest
from .runtime import Runtime
from .step import StepFailed, make_attempt

InChild = Callable[[Coroutine[Any, Any, str], str], str]
"""Makes an attempt in a child process, and has a title for what it prints."""


class StepTask(Task):  # type: ignore[misc]  # Celery is untyped
    """A Celery task of steps. Its message is a delivery: ids only, a hint to try a step. What it means, and whether it
    still means anything, the store knows."""

    Request = StepRequest
    """A worker with children has another one."""
    runtime: ClassVar[Runtime]
    """That of this process. It is there before the first delivery."""
    in_child: ClassVar[InChild]
    """The same of a child."""

    def __call__(self, run_id: str, conversation_id: str, step: str, number: int) -> str:
        """Make an attempt in a child process, where Celery calls its tasks. Elsewhere the pool awaits ``run``."""
        return StepTask.in_child(self.run(run_id, conversation_id, step, number), f"{run_id}/{step}")


_handlers: Final[dict[StepKind, StepHandler]] = {}
_OF_TASKS: Final = {kind.task: kind for kind in KINDS}
"""Each kind with a task of its own, by the name of that."""


def step(kind: StepKind, *, retry: RetryPolicy) -> Callable[[Function], Function]:
    """Make a function the work of a kind of step: ``@step(MODEL, retry=MODEL_CALL)``.

    It gets the `Attempt` and answers with a verdict, or with when its provider takes a call again. An exception that
    it raises is classified, and ``retry`` says what becomes of each class of error: another attempt and when, another
    model, or the end of the run.

    The Celery task is ``kind.task``, and its deliveries come from ``kind.queue``. That of a kind without workers of its
    own is the one of its queue's kind.

    Raises ValueError for a kind that has its work already.
    """

    def make(function: Function) -> Function:
        if kind in _handlers:
            raise ValueError(f"two functions for one kind of step: {kind.name}")
        _handlers[kind] = StepHandler(kind, retry, function)
        if kind in KINDS:
            # Shared: it is bound when the app is there, which reads the environment. Here there may be none yet.
            shared_task(
                attempt_step,
                name=kind.task,
                base=StepTask,
                bind=True,
                # When the step is settled. So a worker holds as many deliveries as it has room for, and no more.
                acks_late=True,
                # It is in the store.
                ignore_result=True,
                throws=(StepFailed, NotSettled),
            )
        return function

    return make


async def attempt_step(task: StepTask, run_id: str, conversation_id: str, step: str, number: int) -> str:
    """Make one attempt of a step: what each task does."""
    return await make_attempt(handler_of, task.runtime, _OF_TASKS[task.name], run_id, conversation_id, step)


def handler_of(kind: StepKind) -> StepHandler:
    """The work of a kind. Raises LookupError for a kind without any: its module is not imported."""
    try:
        return _handlers[kind]
    except KeyError:
        raise LookupError(f"no function is the work of {kind.name} steps: none that is imported has @step") from None
