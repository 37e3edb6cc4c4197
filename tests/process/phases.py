"""Where a run can be when somebody cancels it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from palaver.processes.process_tree import below
from tests.process.cluster import Cluster
from tests.waiting import eventually

LONG = "say-400+rate-20"
FOR_LONG = '[[args {"seconds": 30}]]'
LATER = {"retry": {"rules": {"provider_error": {"first": 60, "max_delay": 60, "jitter": "none"}}}}
EDITOR = {"client_tools": [{"name": "open_file"}]}
WHOLE = {"stream": False}


def wait(seconds: float) -> None:
    """So long, to the millisecond: how far a run comes in a given time is what some tests look for."""
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= until, within=seconds + 10, every=0.0005)


@contextmanager
def frozen(cluster: Cluster, name: str) -> Iterator[None]:
    """A worker does not get the processor meanwhile: what is delivered to it waits."""
    pid = cluster.stack.kill(name, 0, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # It was killed meanwhile.
            for each in (pid, *below(pid)):
                os.kill(each, signal.SIGCONT)


@contextmanager
def in_a_model_call(cluster: Cluster, model: str, text: str = "hello", **more: Any) -> Iterator[str]:
    """A run whose first model call was made; its worker learns nothing of the answer in the block."""
    run_id = cluster.submit(f"{model}+ttft-400", text, **more)
    eventually(lambda: cluster.model_calls(run_id), every=0.01)
    with frozen(cluster, "worker"):
        yield run_id


@contextmanager
def between_steps(cluster: Cluster, **more: Any) -> Iterator[str]:
    """A run whose first turn is over and whose second model call was not begun; it cannot begin in the block."""
    gate = cluster.gate()
    run_id = cluster.submit("tool-3", gate.text, tools=["record"], **more)
    eventually(lambda: cluster.tool_starts(run_id))
    with frozen(cluster, "worker"):
        gate.open()
        cluster.saw(run_id, "tool.finished")
        yield run_id


def scheduled(cluster: Cluster, **more: Any) -> str:
    return cluster.submit("echo", start_after=(datetime.now(UTC) + timedelta(seconds=60)).isoformat(), **more)


def behind_another(cluster: Cluster, **more: Any) -> str:
    """The other one takes three seconds: so long a busy machine may need until whoever asks has done so."""
    ahead = cluster.run(cluster.submit("say-60+rate-20"))
    return cluster.submit("echo", conversation_id=ahead.conversation_id, **more)


def paused_before_its_start(cluster: Cluster, **more: Any) -> str:
    run_id = behind_another(cluster, **more)
    cluster.pause(run_id)
    return run_id


def streaming(cluster: Cluster, **more: Any) -> str:
    run_id = cluster.submit(LONG, **more)
    cluster.saw(run_id, "message.delta")
    return run_id


def asking(cluster: Cluster, model: str, **more: Any) -> str:
    """The model was asked, and nothing came yet."""
    run_id = cluster.submit(model, **more)
    eventually(lambda: cluster.model_calls(run_id))
    return run_id


def in_a_tool(cluster: Cluster, **more: Any) -> str:
    run_id = cluster.submit("tool-1", FOR_LONG, tools=["linger"], **more)
    eventually(lambda: cluster.tool_starts(run_id))
    return run_id


def in_a_coroutine(cluster: Cluster, **more: Any) -> str:
    run_id = cluster.submit("tool-1", FOR_LONG, tools=["wait"], **more)
    cluster.saw(run_id, "step.started", step="1/call_1_1_1")
    return run_id


def backing_off(cluster: Cluster, **more: Any) -> str:
    run_id = cluster.submit("500", agent=LATER, **more)
    cluster.saw(run_id, "run.retrying")
    return run_id


def at_the_gate(cluster: Cluster, **more: Any) -> str:
    """Behind two calls of a provider that takes two at a time."""
    for _ in range(2):
        asking(cluster, f"narrow/{LONG}", **more)
    run_id = cluster.submit("narrow/echo", **more)
    cluster.saw(run_id, "run.waiting", code="max_in_flight")
    return run_id


def cooling_down(cluster: Cluster, **more: Any) -> str:
    run_id = cluster.submit("limited/429-*-60", **more)
    cluster.saw(run_id, "run.retrying")
    return run_id


def awaiting_a_decision(cluster: Cluster, **more: Any) -> str:
    run_id = cluster.submit("tool-1", tools=["send"], **more)
    cluster.reached(run_id, "requires_action")
    return run_id


def awaiting_the_client(cluster: Cluster, **more: Any) -> str:
    run_id = cluster.submit("parallel-2", agent=EDITOR, **more)
    cluster.reached(run_id, "requires_action")
    return run_id


def paused(cluster: Cluster, **more: Any) -> str:
    run_id = streaming(cluster, **more)
    cluster.pause(run_id, now=True)
    cluster.reached(run_id, "paused")
    return run_id


def pausing(cluster: Cluster, **more: Any) -> str:
    run_id = streaming(cluster, **more)
    cluster.pause(run_id)
    return run_id


def cancelled_gracefully(cluster: Cluster, **more: Any) -> str:
    run_id = streaming(cluster, **more)
    assert cluster.cancel(run_id, mode="graceful") == 202
    return run_id


NOT_BEGUN: Mapping[str, Callable[..., str]] = {
    "scheduled": scheduled,
    "behind another": behind_another,
    "paused before its start": paused_before_its_start,
}
BEGUN: Mapping[str, Callable[..., str]] = {
    "streaming": streaming,
    "before the first token": partial(asking, model="hang"),
    "not streaming": partial(asking, model=LONG, agent=WHOLE),
    "hanging, not streaming": partial(asking, model="hang", agent=WHOLE),
    "in a tool": in_a_tool,
    "in a coroutine": in_a_coroutine,
    "backing off": backing_off,
    "at the gate": at_the_gate,
    "cooling down": cooling_down,
    "awaiting a decision": awaiting_a_decision,
    "awaiting the client": awaiting_the_client,
    "paused": paused,
    "pausing": pausing,
    "cancelled gracefully": cancelled_gracefully,
}
