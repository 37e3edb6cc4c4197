"""Short stories with one kind of trouble each; mutants of the product must not get through them unseen.

    python -m tests.chaos.scenarios NAME FOLDER

runs one on a stack of its own, from the tree that it is started in, and prints what the checkers found as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.chaos.watchers import Watchers
from tests.checkers import Violation, violations
from tests.checkers.evidence import Sent
from tests.histories.crowd import Crowd
from tests.histories.recorder import Recorder
from tests.process.checks import collect
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE, eventually

WITHIN = 8.0
"""Seconds that a run may take to end when its story is over."""
SLACK = 3.0
"""Seconds by which a call may begin or end late: nobody is frozen for longer."""


@dataclass
class Story:
    """A scenario while it goes on, and what it writes down itself."""

    cluster: Cluster
    watchers: Watchers
    sent: list[Sent] = field(default_factory=list)
    backlog: list[tuple[int, int]] = field(default_factory=list)
    deaths: int = 0

    def submit(self, model: str, *, key: str | None = None, text: str | None = None, **more: Any) -> str:
        """Submit a run whose input has a nonce, and have it watched; its id."""
        text = text or f"nonce-{uuid.uuid4().hex[:16]}"
        run_id = self.cluster.submit(model, text, key=key, **more)
        self.sent.append(Sent(run_id, text, key))
        self.watchers.follow(run_id)
        return run_id

    def kill(self, name: str, index: int = 0) -> None:
        """SIGKILL to a worker."""
        self.deaths += 1
        self.cluster.kill(name, index)

    def start_failing(self, name: str, points: str) -> int:
        """In place of the worker there is one that fails at these points; its process id."""
        os.environ["PALAVER_FAILPOINTS"] = points
        pid = self.cluster.start(name)
        del os.environ["PALAVER_FAILPOINTS"]
        self.kill(name)
        return pid

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Look at the broker all the time."""
        over = threading.Event()
        thread = threading.Thread(target=self._sample, args=(over,))
        thread.start()
        yield
        over.set()
        thread.join()

    def _sample(self, over: threading.Event) -> None:
        with self.cluster.redis() as server:
            while not over.wait(0.05):
                pipeline = server.pipeline(transaction=True)
                pipeline.llen("tools")
                pipeline.llen("tools.recovered")
                pipeline.zcard("{p00}:ready:tools")
                queued, recovered, steps = pipeline.execute()
                self.backlog.append((queued + recovered, steps))


def ordinary_day(story: Story) -> None:
    """Nobody dies: tools in parallel, a conversation with runs that wait, retries, failures, a key used twice, a step
    that is longer than a lease."""
    key = uuid.uuid4().hex
    first = story.submit("say-60+rate-20", key=key)
    text = story.sent[-1].text
    again = story.submit("say-60+rate-20", key=key, text=text)
    conversation = story.cluster.run(first).conversation_id
    for model in ("echo", "tool-1", "echo"):
        story.submit(model, tools=["calculator"], conversation_id=conversation)
    story.submit("parallel-3+rate-400", tools=["record"])
    story.submit("steps-2-1+use-each+rate-400", tools=["calculator", "record", "record_idempotent"])
    story.submit("401")
    # Longer than what is ready too early could wait for whoever sends lost deliveries again.
    rule = {"attempts": 2, "first": 3, "max_delay": 3, "jitter": "none"}
    story.submit("500-1+echo", agent={"retry": {"rules": {"provider_error": rule}}})
    for _ in range(3):
        story.submit("tool-2+rate-200", tools=["calculator"])
    story.cluster.ended(again, WITHIN)


def killed_mid_stream(story: Story) -> None:
    """A model worker is killed while it streams."""
    story.cluster.start("worker")
    run_id = story.submit("say-30+rate-20")
    story.cluster.saw(run_id, "message.delta")
    story.kill("worker", story.cluster.holder(run_id))


def killed_at_claim(story: Story) -> None:
    """A model worker dies as soon as it has claimed a step."""
    story.start_failing("worker", "step.claimed=kill-group")
    story.submit("echo")
    eventually(lambda: not story.cluster.stack.pids("worker"))
    story.deaths += 1
    story.cluster.start("worker")


def killed_in_tool(story: Story) -> None:
    """A tools worker is killed while three tools run."""
    runs = [story.submit("parallel-2", text='[[args {"seconds": 1}]]', tools=[tool]) for tool in ("record", "linger")]
    runs.append(story.submit("tool-1", text='[[args {"seconds": 0.5}]]', tools=["record_idempotent"]))
    eventually(lambda: sum(len(story.cluster.tool_starts(run_id)) for run_id in runs) >= 4)
    story.kill("tools")
    story.cluster.start("tools")


def frozen(story: Story) -> None:
    """A model worker is frozen for longer than its lease, and goes on when somebody else has the step."""
    story.cluster.start("worker")
    run_id = story.submit("echo+ttft-1500")
    (call,) = eventually(lambda: story.cluster.model_calls(run_id))
    holder = story.cluster.holder(run_id)
    story.deaths += 1
    pid = story.cluster.stack.kill("worker", holder, signal.SIGSTOP)
    other = eventually(lambda: next((c for c in story.cluster.model_calls(run_id) if c.n != call.n), None))
    assert other is not None
    until = call.started_at + 1.7
    eventually(lambda: time.time() > until)
    os.killpg(pid, signal.SIGCONT)


def lost_deliveries(story: Story) -> None:
    """What the broker has is deleted before anybody reads it."""
    for name in ("worker", "tools"):
        story.cluster.stack.kill(name, 0, signal.SIGSTOP)
    for _ in range(3):
        story.submit("tool-1+rate-400", tools=["record"])
    with story.cluster.redis() as broker:
        broker.delete("model", "tools")
    story.deaths += 1
    for name in ("worker", "tools"):
        story.cluster.stack.kill(name, 0, signal.SIGCONT)


def doubled_deliveries(story: Story) -> None:
    """What the broker has is there three times."""
    story.cluster.stack.kill("worker", 0, signal.SIGSTOP)
    for _ in range(2):
        story.submit("echo+ttft-4500")
    with story.cluster.redis() as broker:
        messages = broker.lrange("model", 0, -1)
        broker.lpush("model", *messages, *messages)
    story.deaths += 1
    story.cluster.stack.kill("worker", 0, signal.SIGCONT)


def cancelled(story: Story) -> None:
    """Cancels of all kinds, in a stream, among tools and with steps still ahead, and a run whose time is up."""
    streaming = story.submit("say-400+rate-20")
    withdrawn = story.submit("say-400+rate-20")
    story.submit("say-400+rate-20", budget={"seconds": 1})
    in_tools = story.submit("parallel-6", text='[[args {"seconds": 20}]]', tools=["linger"])
    graceful = story.submit("tool-12+ttft-500", tools=["calculator"])
    for run_id in (streaming, withdrawn):
        story.cluster.saw(run_id, "message.delta")
    eventually(lambda: len(story.cluster.tool_starts(in_tools)) == 4)
    for run_id, mode in ((streaming, "now"), (withdrawn, "rollback"), (in_tools, "now"), (graceful, "graceful")):
        assert story.cluster.cancel(run_id, mode=mode) in (200, 202)


def backlog(story: Story) -> None:
    """More tool calls than the only worker can take."""
    with story.sampling():
        # So long that all that waits is sent again several times: few calls are delivered ahead of their turn.
        run_id = story.submit("parallel-12", text='[[args {"seconds": 4}]]', tools=["record"])
        story.cluster.ended(run_id)


def linear_order(story: Story) -> None:
    """Clients of all kinds, several of each run, and no trouble: there is an order of what they did."""
    chance = random.Random(1)
    recorder = Recorder((story.cluster.stack.url,), chance, PATIENCE)
    crowd = Crowd(recorder, chance, story.cluster.body)
    crowd.over = True
    try:
        asyncio.run(crowd.go(runs=40, at_once=8))
    finally:
        story.cluster.submitted += crowd.runs.values()
    found = recorder.violations()
    assert not found, found[0]


SCENARIOS: Final[Mapping[str, Callable[[Story], None]]] = {
    scenario.__name__: scenario
    for scenario in (
        ordinary_day,
        killed_mid_stream,
        killed_at_claim,
        killed_in_tool,
        frozen,
        lost_deliveries,
        doubled_deliveries,
        cancelled,
        backlog,
        linear_order,
    )
}


def play(name: str, folder: Path) -> list[Violation]:
    """Play a scenario on a stack of its own; what the checkers find."""
    folder.mkdir(parents=True, exist_ok=True)
    with Cluster(folder) as cluster:
        with Watchers(cluster.stack.url, folder / "watchers.jsonl", random.Random(1), breaking=0.05).open() as watchers:
            story = Story(cluster, watchers)
            trouble = None
            try:
                SCENARIOS[name](story)
            except AssertionError as error:
                # A mutant may not even get so far; the checkers say why.
                trouble = Violation("", name, str(error))
            evidence = replace(
                collect(cluster, WITHIN),
                sent=story.sent,
                watched=watchers.seen(),
                deaths=story.deaths,
                backlog=story.backlog,
                slack=SLACK,
            )
        found = violations(evidence)
        return [*found, trouble] if trouble else found


def main() -> None:
    """Play the scenario that is named."""
    name, folder = sys.argv[1:]
    print(json.dumps([asdict(violation) for violation in play(name, Path(folder))]))


if __name__ == "__main__":
    main()
