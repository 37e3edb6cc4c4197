"""Clients, workers and sweepers that do anything in any order, and what must hold whatever they do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from palaver.errors import Conflict, StaleLease
from palaver.leases import Delivery, Lease, Settled
from palaver.lifecycle import RunStatus, StopReason, WaitReason
from palaver.models import AgentSpec, Budget, Message, ToolCall
from palaver.settings import Settings
from palaver.store import Store, keys
from palaver.store.due import Attention
from palaver.store.steps import Renewal
from palaver.verdicts import Continue, Finish, OpenCall, ToolOutcome
from tests.contract.desk import INTERNAL, TOOL_ERROR, Desk
from tests.contract.invariants import check_whole

T = TypeVar("T")
Choose = Callable[[Sequence[Any]], Any]
"""Picks one of several; early ones are the simple ones."""
AGENT = AgentSpec(model="fake/echo", max_steps=4)
MOST_RUNS = 30
WORKERS = ("w1", "w2", "w3")
VERDICTS = (*["go on"] * 8, "hand back", "hand back", "postpone", "retry", "retry", "give up", "finish")
CALLS = ((), ("c1",), ("c1", "c2"), ("i1", "c1", "a1"), ("c1", "i1", "c2", "i2"), ("a1",), ("i1",))
"""What a model asks for. c: must not be started twice, i: idempotent, a: answered in the model step."""


class Walker:
    """One random walk through the store."""

    def __init__(self, redis: Any) -> None:
        self.redis = redis
        self.desk = Desk(Store(redis, Settings(redis_url="redis://127.0.0.1:1/0")), redis)
        self.runs: list[str] = []
        self.conversations: list[str] = []
        self.deliveries: list[Delivery] = []
        self.taken: set[str] = set()
        """Deliveries that reached a worker; they come again, too."""
        self.leases: list[Lease] = []
        self.current: dict[tuple[str, str], int] = {}
        """The newest fence of each step that is leased."""
        self.cancelled: set[str] = set()
        """Runs whose cancel was acknowledged."""
        self.started: set[str] = set()
        """Calls that must not be started again."""

    def note(self, *settled: Settled) -> None:
        """Deliveries that a worker may get, now or ever."""
        for each in settled:
            self.deliveries += each.deliveries

    async def client(self, choose: Choose) -> None:
        """What clients do."""
        await choose([self.submit, self.submit, self.cancel])(choose)

    async def worker(self, choose: Choose) -> None:
        """What workers do."""
        often, seldom = [self.claim, self.settle] * 4, [self.settle_again, self.renew]
        await choose([*often, *seldom])(choose)

    async def sweeper(self, choose: Choose) -> None:
        """What sweepers do, and what time does."""
        await choose([*[self.time_passes] * 8, *[self.look_early] * 4, self.deadline])(choose)

    async def submit(self, choose: Choose) -> None:
        """A new run, in a new conversation or in one there is, now or later."""
        if len(self.runs) == MOST_RUNS:
            return
        conversation = choose([None, *self.conversations])
        later = datetime.now(UTC) + timedelta(hours=1)
        start_after = choose([None, None, None, later])
        budget = choose([None, None, Budget(tool_calls=3, seconds=3600)])
        submitted = await self.desk.submit(
            conversation_id=conversation, agent=AGENT, start_after=start_after, budget=budget
        )
        self.runs.append(submitted.run_id)
        self.deliveries += submitted.deliveries
        if conversation is None:
            self.conversations.append((await self.desk.get(submitted.run_id)).conversation_id)

    async def cancel(self, choose: Choose) -> None:
        """A cancel is acknowledged, or refused because the run has ended otherwise."""
        if not self.runs:
            return
        # Those that are worked on are the interesting ones.
        run_id = choose([*self.runs, *[run_id for run_id, _ in self.current] * 3])
        before = (await self.desk.get(run_id)).status
        try:
            self.note(await self.desk.store.runs.cancel(run_id))
        except Conflict:
            assert before.terminal
            assert before is not RunStatus.CANCELLED
        else:
            assert not before.terminal or before is RunStatus.CANCELLED
            self.cancelled.add(run_id)

    async def claim(self, choose: Choose) -> None:
        """A delivery reaches a worker: for the first time mostly, or again, or late."""
        if not self.deliveries:
            return
        fresh = [each for each in self.deliveries if each.task_id not in self.taken][::-1]
        delivery = choose([*fresh, *fresh, self.deliveries[-1], self.deliveries[0]])
        lease = await self.desk.try_claim(delivery, choose(WORKERS), nonce=choose([None, "n"]))
        self.taken.add(delivery.task_id)
        if not isinstance(lease, Lease):
            return
        step, call = (lease.run_id, lease.step), f"{lease.run_id}/{lease.step}"
        if lease.fence != self.current.get(step):
            assert step not in self.current, f"{call} is leased to two"
            assert call not in self.started, f"{call} is started twice"
            if lease.call is not None and not lease.call.id.startswith("i"):
                self.started.add(call)
        assert lease.run_id not in self.cancelled, f"{call} is begun after the cancel"
        self.current[step] = lease.fence
        self.leases.append(lease)

    async def settle(self, choose: Choose) -> None:
        """A worker brings a verdict under its lease."""
        live = [each for each in self.leases if self.current.get((each.run_id, each.step)) == each.fence]
        if live:
            await self._settle(choose(live[::-1]), choose)

    async def settle_again(self, choose: Choose) -> None:
        """So does one that was thought dead, or whose answer got lost."""
        if self.leases:
            await self._settle(choose(self.leases[::-1]), choose)

    async def _settle(self, lease: Lease, choose: Choose) -> None:
        step, verdict, flag = (lease.run_id, lease.step), choose(VERDICTS), choose([False, True])
        if verdict == "postpone" and lease.call is not None:
            verdict = "retry"
        newest = self.current.get(step) == lease.fence
        known = await self.redis.hget(keys.run(lease.run_id), "settled") == str(lease.fence).encode()
        ended = (await self.desk.get(lease.run_id)).status.terminal
        # A tool that asks for another try, or was handed back unbegun, may be started again.
        if newest and (verdict == "retry" or (verdict == "hand back" and not flag)):
            self.started.discard(f"{lease.run_id}/{lease.step}")
        try:
            self.note(await self._bring(lease, verdict, choose(CALLS), flag))
        except StaleLease:
            assert not newest or ended
        else:
            assert newest or known
        self.current.pop(step, None) if newest else None

    def _bring(self, lease: Lease, verdict: str, ids: Sequence[str], flag: bool) -> Awaitable[Settled]:
        steps, tool = self.desk.store.steps, lease.call is not None
        match verdict:
            case "go on" if tool:
                return self.desk.answer(lease)
            case "go on":
                asked = tuple(ToolCall(id=call_id, name="t") for call_id in ids)
                answers = tuple(Message(role="tool", call_id=call_id) for call_id in ids if call_id[0] == "a")
                opened = tuple(OpenCall(call, call.id[0] == "i") for call in asked if call.id[0] != "a")
                message = Message(role="assistant", tool_calls=asked)
                return steps.settle(lease, Continue(message, tuple(map(ToolOutcome, answers)), opened))
            case "finish":
                cut = (ToolCall(id="cut", name="t"),) if flag else ()
                message = Message(role="assistant", content="bye", tool_calls=cut)
                return steps.settle(lease, Finish(None if tool else message, StopReason.MAX_TOKENS))
            case "give up":
                return self.desk.give_up(lease, TOOL_ERROR if flag and tool else INTERNAL)
            case "retry":
                return self.desk.retry(lease)
            case "postpone":
                return steps.postpone(lease, 60, WaitReason.PROVIDER_COOLDOWN, code="cooldown")
            case _:
                return steps.hand_back(lease, begun=flag)

    async def renew(self, choose: Choose) -> None:
        """A worker renews what it holds, or held."""
        held = [(lease.run_id, lease.step) for lease in self.leases[-3:]]
        for (run_id, _), answer in zip(held, await self.desk.store.steps.renew(choose(WORKERS), held), strict=True):
            assert answer is not Renewal.PROLONGED or run_id not in self.cancelled

    async def time_passes(self, choose: Choose) -> None:
        """Something in the due index has come due, and a sweeper attends to it."""
        members = [m.decode() for m in await self.redis.zrange(keys.due("00"), 0, -1)]
        members = sorted((m for m in members if not m.endswith("/end")), key=self._age)
        if members:
            await self._comes_due(choose(members))

    async def deadline(self, choose: Choose) -> None:
        """A run's deadline passes."""
        if not self.runs:
            return
        run_id = choose(self.runs)
        if not (await self.desk.get(run_id)).status.terminal:
            await self.redis.hset(keys.run(run_id), "deadline", 2)
            await self._comes_due(f"{run_id}/end")
            assert (await self.desk.get(run_id)).status.terminal

    async def look_early(self, choose: Choose) -> None:
        """A sweeper looks at what may not be due: delivering the unclaimed again is all that it may do."""
        if not self.runs:
            return
        run_id, what = choose(self.runs), choose(["start", "end", "1", "2", "1/c1", "nonsense"])
        before = (await self.desk.get(run_id)).status
        self.note(*await self.desk.attend(run_id, what, unclaimed_after=0))
        assert (await self.desk.get(run_id)).status is before

    def _age(self, member: str) -> tuple[int, str]:
        run_id, _, what = member.partition("/")
        return self.runs.index(run_id), what

    async def _comes_due(self, member: str) -> None:
        run_id, _, what = member.partition("/")
        self.note(*await self.desk.hasten(run_id, what))
        self.current.pop((run_id, what), None)

    async def check(self) -> None:
        """What holds after every step."""
        await check_whole(self.redis)
        for run_id in self.cancelled:
            status = (await self.desk.get(run_id)).status
            assert status in (RunStatus.CANCELLING, RunStatus.CANCELLED), f"{run_id} was cancelled: {status}"

    async def drive_to_the_end(self) -> None:
        """Time passes and one good worker is left: every run ends."""
        for _ in range(200):
            came_due = await self._everything_comes_due()
            found = await self.desk.store.due.unclaimed("model", -60, 100)
            found += await self.desk.store.due.unclaimed("tools", -60, 100)
            if not found and not came_due:
                break
            for settled in await self.desk.store.due.attend(found, unclaimed_after=-60):
                for delivery in settled.deliveries:
                    lease = await self.desk.try_claim(delivery, "good")
                    if isinstance(lease, Lease):
                        await (self.desk.finish(lease) if lease.call is None else self.desk.answer(lease))
        for run_id in self.runs:
            status = (await self.desk.get(run_id)).status
            assert status.terminal, f"{run_id} is {status}"
        await check_whole(self.redis)

    async def _everything_comes_due(self) -> bool:
        members = [m.decode() for m in await self.redis.zrange(keys.due("00"), 0, -1)]
        things = [Attention(*m.split("/", 1)) for m in members if not m.endswith("/end")]
        if things:
            await self.redis.zadd(keys.due("00"), {f"{thing.run_id}/{thing.what}": 1 for thing in things})
            await self.desk.store.due.attend(things)
        return bool(things)
