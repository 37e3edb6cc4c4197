"""Clients that do anything with any run at any time; the random walk's one half."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from palaver.config.settings import Settings
from palaver.errors import StateConflict
from palaver.schemas.actions import Item
from palaver.schemas.conversation import Fork
from palaver.schemas.models import AgentSpec, Budget, Message, Retry, Run
from palaver.steps.leases import Delivery, Settled
from palaver.store import Store
from palaver.vocabulary.lifecycle import RunStatus
from tests.contract.store_driver import PAUSE, PAUSE_NOW, RESUME, STOP, StoreDriver, approve, deny, edit, output, say

Choose = Callable[[Sequence[Any]], Any]
"""Picks one of several; early ones are the simple ones."""
AGENT = AgentSpec(model="fake/echo", max_steps=4)
MOST_RUNS = 30
CONFLICTS = ("enqueue", "enqueue", "enqueue", "reject", "steer", "interrupt", "rollback")


class Clients:
    """What clients know, and what they do."""

    def __init__(self, redis: Any) -> None:
        self.redis = redis
        self.driver = StoreDriver(Store(redis, Settings(redis_url="redis://127.0.0.1:1/0")), redis)
        self.runs: list[str] = []
        self.conversations: list[str] = []
        self.deliveries: list[Delivery] = []
        self.current: dict[tuple[str, str], int] = {}
        """The newest fence of each step that is leased."""
        self.cancelled: dict[str, str] = {}
        """Runs whose cancel was acknowledged, and the strongest mode."""
        self.held: set[str] = set()
        """Runs whose pause was acknowledged."""
        self.allowed: set[str] = set()
        """Calls whose approval was acknowledged."""
        self.said: dict[str, str] = {}
        """What was said into runs: words, and the run."""
        self.appended: dict[str, str] = {}
        """What was said without a run: words, and the conversation."""
        self._numbers = itertools.count()

    def note(self, *settled: Settled) -> None:
        """Deliveries that a worker may get, now or ever."""
        for each in settled:
            self.deliveries += each.deliveries

    async def client(self, choose: Choose) -> None:
        """Something that a client does."""
        often = [self.submit, self.act, self.act, self.act]
        seldom = [self.retry, self.retry, self.delete, self.append, self.append, self.answer_all]
        seldom += [self.withdraw, self.fork]
        what = choose([*often * 3, *[self.submit] * 3, *[self.cancel] * 3, *seldom])
        try:
            await what(choose)
        except StateConflict as conflict:
            await self._refused(conflict)

    async def _refused(self, conflict: StateConflict) -> None:
        """What can be told of the reason is right."""
        match conflict.code, conflict.run_id:
            case "run_ended", str(run_id):
                status = (await self.driver.get(run_id)).status
                assert status.terminal or status is RunStatus.CANCELLING
            case "run_active", str(run_id):
                assert not (await self.driver.get(run_id)).status.terminal
            case "pending_action", str(run_id):
                assert (await self.driver.get(run_id)).pending_actions

    async def submit(self, choose: Choose) -> None:
        """A new run, in a new conversation or in one there is, now or later; or words into one."""
        if len(self.runs) >= MOST_RUNS:
            await self.delete(choose)
            return
        conversation = choose([None, *self.conversations])
        later = datetime.now(UTC) + timedelta(hours=1)
        start_after, how = choose([None, None, None, later]), choose(CONFLICTS)
        budget = choose([None, None, Budget(tool_calls=3, seconds=3600)])
        words = self._words()
        before = await self._waiting(conversation) if conversation else []
        submitted = await self.driver.submit(
            (Message(role="user", content=words),), conversation_id=conversation, agent=AGENT, budget=budget,
            start_after=None if how != "enqueue" else start_after, on_conflict=how,
        )  # fmt: skip
        self.deliveries += submitted.deliveries
        self.said[words] = submitted.run_id
        if submitted.steered:
            assert how == "steer"
            assert submitted.run_id in self.runs
            return
        self._new(await self.driver.get(submitted.run_id))
        if how in ("interrupt", "rollback"):
            for run_id in before:
                self._cancelled(run_id, "now" if how == "interrupt" else how)

    async def append(self, choose: Choose) -> None:
        """Words without a run: into the log, or into the run that is active."""
        if not self.conversations:
            return
        conversation, words = choose(self.conversations), self._words()
        before = await self.driver.store.runs.conversation(conversation)
        appended = await self.driver.store.history.append(conversation, (Message(role="user", content=words),))
        assert appended.run_id == before.active_run
        if appended.run_id is None or (await self.driver.get(appended.run_id)).status is RunStatus.CANCELLING:
            self.appended[words] = conversation
        else:
            self.said[words] = appended.run_id

    async def answer_all(self, choose: Choose) -> None:
        """A run without words, in a conversation that may have something to answer."""
        if not self.conversations or len(self.runs) >= MOST_RUNS:
            return
        submitted = await self.driver.submit((), conversation_id=choose(self.conversations), agent=AGENT)
        self.deliveries += submitted.deliveries
        self._new(await self.driver.get(submitted.run_id))

    async def withdraw(self, choose: Choose) -> None:
        """Somebody goes back to an earlier place, if no run is active and no turn is torn."""
        if not self.conversations:
            return
        conversation = choose(self.conversations)
        entries = (await self.driver.store.runs.conversation(conversation)).entries
        after = choose([max(0, entries - each) for each in (0, 1, 3, 6, 12)])
        await self.driver.store.history.withdraw(conversation, after)

    async def fork(self, choose: Choose) -> None:
        """A conversation begins with the log of another one."""
        if not self.conversations or len(self.conversations) >= MOST_RUNS:
            return
        conversation = choose(self.conversations)
        entries = (await self.driver.store.runs.conversation(conversation)).entries
        forked, _ = await self.driver.store.history.fork(
            conversation, Fork(through=choose([None, entries, entries // 2]))
        )
        assert forked.forked_through == forked.entries <= entries
        self.conversations.append(forked.id)

    async def cancel(self, choose: Choose) -> None:
        """A cancel is acknowledged, or refused because the run has ended otherwise."""
        run_id = await self._some_run(choose)
        if run_id is None:
            return
        mode = choose(["now", "graceful", "rollback"])
        before = (await self.driver.get(run_id)).status
        settled = await self.driver.store.runs.cancel(run_id, mode=mode)
        self.note(settled)
        assert settled.status in ("cancelling", "cancelled")
        assert not before.terminal or before is RunStatus.CANCELLED
        if not before.terminal:
            self._cancelled(run_id, mode)

    async def act(self, choose: Choose) -> None:
        """Decisions, outputs, words, pause and resume: one or two in a request."""
        run_id = await self._some_run(choose)
        if run_id is None:
            return
        asking = [each for each in self.runs if (await self.driver.get(each)).pending_actions]
        run_id = choose([run_id, *asking])
        run = await self.driver.get(run_id)
        items = [self._item(run, choose) for _ in range(choose([1, 1, 2]))]
        acted = await self.driver.act(run_id, *items)
        self.note(acted.settled)
        assert not run.status.terminal
        waiting = {action.id: action for action in run.pending_actions}
        for item in items:
            match item.type:
                case "pause":
                    self.held.add(run_id)
                case "resume":
                    self.held.discard(run_id)
                case "stop":
                    self._cancelled(run_id, "graceful")
                case "message":
                    self.said[item.content] = run_id
                case "approval" if item.decision != "deny":
                    ids = list(waiting) if item.action_id == "all" else [item.action_id]
                    self.allowed |= {
                        f"{run_id}/{run.step}/{waiting[each].call_id}"
                        for each in ids
                        if waiting[each].type == "approval"
                    }

    def _item(self, run: Run, choose: Choose) -> Item:
        wanted: list[Item] = [say(self._words()), approve(), choose([approve(), STOP])]
        wanted += [RESUME] * 6 if run.pausing or run.status is RunStatus.PAUSED else [PAUSE, PAUSE_NOW]
        for action in run.pending_actions:
            if action.type == "approval":
                wanted += [
                    approve(action.id),
                    edit(action.id, x=2),
                    approve(),
                    deny(action.id, "no"),
                    output(action.id),
                ]
            else:
                wanted += [output(action.call_id), output(action.id, [1], is_error=True), output(action.id), deny()]
        return choose([*wanted, RESUME])  # type: ignore[no-any-return]

    async def retry(self, choose: Choose) -> None:
        """A run that has ended is gone on with, or a step of it is made anew."""
        run_id = await self._some_run(choose)
        if run_id is None or len(self.runs) >= MOST_RUNS:
            return
        old = await self.driver.get(run_id)
        step = choose([None, 1, 2])
        submitted = await self.driver.store.control.retry(run_id, Retry(from_step=step))
        new = await self.driver.get(submitted.run_id)
        assert old.status.terminal
        assert (new.conversation_id == old.conversation_id) == (step is None)
        self.deliveries += submitted.deliveries
        self._new(new)

    async def delete(self, choose: Choose) -> None:
        """A run or a conversation is deleted, or it has not ended."""
        if not self.runs:
            return
        run_id = choose(self.runs)
        conversation = (await self.driver.get(run_id)).conversation_id
        if choose([True, True, False]):
            await self.driver.store.control.delete_run(run_id)
            self._forget(run_id)
        else:
            runs = await self._runs_of(conversation)
            await self.driver.store.control.delete_conversation(conversation)
            self.conversations.remove(conversation)
            for run in runs:
                self._forget(run)
            self.appended = {words: into for words, into in self.appended.items() if into != conversation}

    async def _some_run(self, choose: Choose) -> str | None:
        """One that goes on, mostly, and is worked on: that is where things meet."""
        if not self.runs:
            return None
        open_runs = [run_id for run_id in self.runs if not (await self.driver.get(run_id)).status.terminal]
        worked_on = [run_id for run_id, _ in self.current if run_id in open_runs]
        return choose([*worked_on * 4, *open_runs * 4, *self.runs])  # type: ignore[no-any-return]

    async def _waiting(self, conversation_id: str) -> Sequence[str]:
        found = await self.driver.store.runs.conversation(conversation_id)
        return [run_id for run_id in (found.active_run, *found.queued_runs) if run_id]

    async def _runs_of(self, conversation_id: str) -> Sequence[str]:
        return [
            run_id for run_id in self.runs if (await self.driver.get(run_id)).conversation_id == conversation_id
        ]  # fmt: skip

    def _words(self) -> str:
        return f"words {next(self._numbers)}"

    def _new(self, run: Run) -> None:
        self.runs.append(run.id)
        if run.conversation_id not in self.conversations:
            self.conversations.append(run.conversation_id)

    def _cancelled(self, run_id: str, mode: str) -> None:
        strength = ("graceful", "now", "rollback")
        self.cancelled[run_id] = max(self.cancelled.get(run_id, mode), mode, key=strength.index)

    def _forget(self, run_id: str) -> None:
        self.runs.remove(run_id)
        self.cancelled.pop(run_id, None)
        self.said = {words: into for words, into in self.said.items() if into != run_id}

    async def check_said(self) -> None:
        """What was said is in the log once, or the turn of the run that it was said into has never come."""
        for words, conversation in self.appended.items():
            entries = await self.driver.store.runs.entries(conversation, limit=10_000)
            said = [entry.data.get("message", {}).get("content") for entry in entries if not entry.run_id]
            assert said.count(words) == 1, f"{words} in {said} of {conversation}"
        for words, run_id in self.said.items():
            run = await self.driver.get(run_id)
            log = [
                entry.data
                for entry in await self.driver.log(run_id)
                if entry.run_id == run_id and "message" in entry.data
            ]
            said = [data["message"].get("content") for data in log]
            said += await self.driver.waiting_input(run_id)
            assert said.count(words) == 1, f"{words} in {said} of {run}"
