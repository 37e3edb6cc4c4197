"""Whatever happens in a conversation, in any order: no provider would refuse its history, and its next run completes.

Hypothesis draws the sequences (scenarios.py): results, exceptions, retries, timeouts and crashes of tools, calls that
do not fit or are denied, cancels and inputs at all moments, conversations that are too long, limits, failures of the
provider, a model worker that is killed, user messages that come while a run is going, and what is done to a
conversation between its runs: words without a run, going back, condensing, a fork that is gone on with. Each
conversation speaks one protocol, or all of them in turns.

A failure tells the story of its conversation. With the seed that was printed last, as PALAVER_CHAOS_SEED, the same
sequences are drawn again, and Hypothesis looks for shorter ones that fail.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from traceback import format_exception

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from palaver.client import AsyncPalaver, Conflict, Unprocessable
from palaver.errors import PalaverError
from palaver.events import Event, StepStarted, ToolFinished
from palaver.schemas.conversation import AppendedMessages
from palaver.schemas.models import Run
from tests.chaos.seeds import first_seed, scaled
from tests.process.checks import check_conversations
from tests.process.cluster import Cluster
from tests.process.scenarios import TOLD, Scenario, Sequences, sequences

pytestmark = pytest.mark.process

MODEL_WORKERS = 2
CONVERSATIONS = 12
"""At the same time: most of the time of each is waiting."""
EXAMPLES = 3
FILLER = "This message makes the conversation long. " * 300
PATIENCE = 60.0
"""Seconds that a run may take, those ahead of it included."""
TOLD_EVENTS = 20
"""Of a run that went wrong: the last ones."""
TOLD_OF_ERROR = 3000
"""Characters of a traceback: the last ones."""


def test_any_sequence_leaves_a_conversation_that_goes_on(cluster: Cluster) -> None:
    go_through_any(cluster, first_seed())


@pytest.mark.chaos
def test_many_sequences_leave_conversations_that_go_on(cluster: Cluster) -> None:
    first = first_seed()
    for number in range(first, first + scaled(10)):
        go_through_any(cluster, number)


def go_through_any(cluster: Cluster, number: int) -> None:
    """Draw with the seed `number` what happens to some conversations, and let it happen; a few times."""
    print(f"PALAVER_CHAOS_SEED={number}")
    cluster.expect_traceback("WorkerLostError")

    failed: dict[str, Sequence[str]] = {}
    """The stories of drawings that failed. Hypothesis goes through such a one again, when all may go well."""

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        # To look for a smaller example takes minutes: for those who ask for this seed.
        phases=(Phase.generate, Phase.shrink) if "PALAVER_CHAOS_SEED" in os.environ else (Phase.generate,),
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        # What was drawn is in the stories.
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(sequences(conversations=CONVERSATIONS))
    def example(drawn: Sequences) -> None:
        # Whole: what people are shown of it may be cut.
        name = repr([[vars(each) for each in sequence] for sequence in drawn])
        if name not in failed:
            while len(cluster.stack.pids("worker")) < MODEL_WORKERS:
                cluster.start("worker")
            # Runs of one example after the other that ask the same model for a failure would be an outage of it.
            cluster.forget_cool_downs()
            if stories := asyncio.run(go_through(cluster, drawn)):
                failed[name] = stories
        if name in failed:
            raise AssertionError("\n\n".join(failed[name]))

    example()


async def go_through(cluster: Cluster, drawn: Sequences) -> Sequence[str]:
    """All sequences, each in a conversation of its own; the stories of those that went wrong."""
    async with AsyncPalaver(cluster.stack.url) as client, asyncio.TaskGroup() as group:
        talks = [Talk(cluster, client, sequence) for sequence in drawn]
        for talk in talks:
            group.create_task(talk.go_through())
    if not any(talk.wrong for talk in talks):
        try:
            await asyncio.to_thread(check_conversations, cluster, [run_id for talk in talks for run_id in talk.runs])
        except AssertionError as error:
            said = str(error)
            meant = [talk for talk in talks if any(name in said for name in (str(talk.conversation_id), *talk.runs))]
            return [said, *(talk.story() for talk in meant)]
    return [talk.story() for talk in talks if talk.wrong]


@dataclass
class Talk:
    """One conversation as it goes."""

    cluster: Cluster
    client: AsyncPalaver
    sequence: Sequence[Scenario]
    conversation_id: str | None = None
    runs: list[str] = field(default_factory=list)
    going: set[asyncio.Task[None]] = field(default_factory=set)
    said: list[tuple[str, str]] = field(default_factory=list)
    """What the user said without a run, and in which conversation."""
    wrong: list[str] = field(default_factory=list)

    def story(self) -> str:
        """For people: what went wrong, and what it was to go through."""
        return "\n".join([*self.wrong, f"{self.conversation_id} was to go through", *map(repr, self.sequence)])

    async def go_through(self) -> None:
        """Let everything happen; afterwards a plain run completes. Whatever is raised is part of the story."""
        try:
            await self._let_everything_happen()
            await self._find_what_was_said()
        except Exception as error:
            self.wrong.append("".join(format_exception(error))[-TOLD_OF_ERROR:])
        if self.wrong:
            for run_id in self.runs:
                with suppress(PalaverError):
                    await self.client.cancel(run_id)

    async def _let_everything_happen(self) -> None:
        async with asyncio.TaskGroup() as group:
            plain = Scenario("echo", text="go on", provider=self.sequence[-1].provider)
            for scenario in (*self.sequence, plain):
                if scenario.ahead and self.conversation_id:
                    await self._see_ahead(scenario)
                if scenario.window is not None:
                    scenario = await self._outgrowing(scenario)
                run_id = await self._submit(scenario)
                self.going.add(watch := group.create_task(self._see_through(run_id, scenario)))
                watch.add_done_callback(self.going.remove)
                if scenario.waited_for:
                    await self._all_ended()
                if self.wrong:
                    break

    async def _all_ended(self) -> None:
        if self.going:
            await asyncio.wait(self.going)

    async def _see_ahead(self, scenario: Scenario) -> None:
        """Let happen to the conversation what comes before the run of a scenario, once no run is going."""
        await self._all_ended()
        assert self.conversation_id
        try:
            await self._do_ahead(self.conversation_id, scenario)
        except (AssertionError, PalaverError, TimeoutError) as error:
            self.wrong.append(f"ahead of {scenario}: {error!r}")

    async def _do_ahead(self, conversation_id: str, scenario: Scenario) -> None:
        before = await self.client.conversation(conversation_id)
        through = round(before.entries * scenario.share)
        try:
            match scenario.ahead:
                case "append":
                    said = await self._say(f"ahead of run {len(self.runs) + 1}")
                    assert (said.position, said.run_id) == (before.entries + 1, None), said
                case "withdraw":
                    after = await self.client.withdraw(conversation_id, through)
                    # The log says so, unless there was nothing to withdraw.
                    assert after.entries == before.entries + (through < before.entries), (after, through)
                case "fork":
                    fork = await self.client.fork(conversation_id, through)
                    assert (fork.entries, fork.forked_from) == (through, conversation_id), fork
                    self.conversation_id = fork.id
                case "condense":
                    await self._condense(conversation_id, scenario.provider)
        except Unprocessable as refused:
            # A call has no result there, or it is withdrawn; and nothing has happened.
            left = (await self.client.conversation(conversation_id)).entries
            if refused.code != "unknown_position" or left != before.entries:
                raise

    async def _condense(self, conversation_id: str, provider: str) -> None:
        """By a model that can: the newest agent's is asked."""
        plain = Scenario("echo", text="that much", provider=provider)
        await self._see_through(await self._submit(plain), plain)
        try:
            run = await self.client.condense(conversation_id)
        except Conflict as refused:
            if refused.code != "nothing_to_condense":
                raise
            return
        self.runs.append(run.id)
        await self._see_through(run.id, Scenario("echo", shows="run.finished", provider=provider))
        said = [each async for each in self.client.messages(conversation_id) if each.run_id == run.id]
        assert not said, f"it was to condense, and said {said}"

    async def _say(self, text: str) -> AppendedMessages:
        """Words without a run."""
        assert self.conversation_id
        said = await self.client.append(self.conversation_id, text)
        self.said.append((self.conversation_id, text))
        return said

    async def _find_what_was_said(self) -> None:
        """Words without a run are in the log of their conversation once, whatever they met there."""
        for conversation_id in {conversation_id for conversation_id, _ in self.said}:
            found = [each.content async for each in self.client.messages(conversation_id) if each.role == "user"]
            lost = [text for there, text in self.said if there == conversation_id and found.count(text) != 1]
            if lost:
                self.wrong.append(f"{conversation_id} has not once {lost}")

    async def _outgrowing(self, scenario: Scenario) -> Scenario:
        """Make the conversation long, and give the model the window that it is to outgrow."""
        filler = Scenario("say-3", text=FILLER, provider=scenario.provider)
        run_id = await self._submit(filler)
        await self._see_through(run_id, filler)
        usage = (await self.client.get(run_id)).usage
        assert scenario.window is not None
        window = round(usage.input_tokens / max(usage.model_calls, 1) * scenario.window)
        return replace(scenario, model=f"{scenario.model}+window-{window}")

    async def _submit(self, scenario: Scenario) -> str:
        def after(seconds: float | None) -> datetime | None:
            return None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)

        try:
            run = await self.client.submit(
                scenario.text,
                agent={
                    "model": f"{scenario.provider}/{scenario.model}",
                    "tools": list(scenario.tools),
                    **(scenario.agent or {}),
                },
                conversation_id=self.conversation_id,
                budget=scenario.budget,
                start_after=after(scenario.start_after),
                deadline=after(scenario.deadline),
            )
        except Conflict as refused:
            if refused.code != "pending_action":
                raise
            # It takes no further run until somebody has decided.
            await self._all_ended()
            return await self._submit(scenario)
        except Unprocessable as refused:
            if refused.code != "invalid_time" or scenario.deadline is None:
                raise
            # Its deadline was over before it was there: on a machine that is so busy, it needs more time.
            return await self._submit(replace(scenario, deadline=2 * scenario.deadline))
        self.conversation_id = run.conversation_id
        self.runs.append(run.id)
        return run.id

    async def _see_through(self, run_id: str, scenario: Scenario) -> None:
        """Watch the run to its end, do to it what is to be done, and judge what came of it."""
        seen: list[Event] = []
        cancelled = False
        try:
            async with asyncio.timeout(PATIENCE), aclosing(self.client.events(run_id)) as events:
                async for event in events:
                    seen.append(event)
                    for moment, items in scenario.puts:
                        if moment.reached(seen):
                            answer = await asyncio.to_thread(self.cluster.put, run_id, *map(dict, items))
                            assert answer.status_code in (200, 202, 409), answer.text
                    if scenario.says is not None and scenario.says.reached(seen):
                        await self._say(f"beside {run_id}")
                    if scenario.cancel is not None and scenario.cancel.reached(seen):
                        cancelled = await self._cancel(run_id)
                    if scenario.kill is not None and scenario.kill.reached(seen):
                        await asyncio.to_thread(self._end_model_worker, seen)
            judge(await self.client.get(run_id), scenario, seen, cancelled=cancelled)
        except (AssertionError, PalaverError, TimeoutError) as error:
            self.wrong += [f"{run_id}, {scenario}: {error!r}", *map(told_of, seen[-TOLD_EVENTS:])]

    async def _cancel(self, run_id: str) -> bool:
        """Whether the cancel was acknowledged."""
        try:
            await self.client.cancel(run_id)
        except Conflict:
            return False
        return True

    def _end_model_worker(self, seen: Sequence[Event]) -> None:
        """SIGKILL to the one that had the run last, or to any, and another one in its place."""
        begun = [each.worker for each in seen if isinstance(each, StepStarted) and "/" not in each.step]
        pids = self.cluster.stack.pids("worker")
        self.cluster.kill("worker", pids.index(int(begun[-1].rpartition("/")[2])) if begun else 0)
        self.cluster.start("worker")


def told_of(event: Event) -> str:
    """A line of a story."""
    told = event.model_dump_json(exclude={"type", "run_id", "seq", "at"}, exclude_none=True)
    return f"  {event.seq} {event.at:%S.%f} {event.type} {told[:160]}"


def judge(run: Run, scenario: Scenario, seen: Sequence[Event], *, cancelled: bool) -> None:
    """The run ended as it may, and its calls were answered with what became of them."""
    end = f"error:{run.error['class']}" if run.error and run.stop_reason == "error" else str(run.stop_reason)
    assert end in (("cancelled",) if cancelled else scenario.ends), f"ended as {end}: {run.error}"
    if not cancelled:
        assert scenario.shows in {event.type for event in seen}, f"no {scenario.shows}"
    told = {**TOLD, **(scenario.told or {})}
    # Whatever ends a run may end its calls.
    sealed = set() if end == "end_turn" else {"tool_interrupted", "tool_denied"}
    for event in seen:
        if isinstance(event, ToolFinished):
            expected = told[event.message.name or ""]
            assert (event.error["class"] if event.error else "") in {expected, *sealed}, f"{event} for {expected!r}"
