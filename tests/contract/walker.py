"""Workers and sweepers that do anything in any order, and what must hold whatever they and the clients do."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from palaver.errors import StaleLease, TimePassed, UnknownRun
from palaver.schemas.models import Message, Subagent, ToolCall
from palaver.schemas.tenants import CapsChange
from palaver.steps.leases import Lease, OfferedPlace, Renewal, Settled, Shown
from palaver.steps.verdicts import Condensed, Continue, Finish, OpenCall, Postpone, ToolOutcome
from palaver.store.redis import keys
from palaver.store.runs.children import BudgetUsed, child_id
from palaver.store.runs.runs import ChildBarred
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason
from palaver.vocabulary.step_kinds import REMOTE, TOOL
from tests.contract.clients import AGENT, Choose, Clients
from tests.contract.invariants import MESSAGES, check_whole
from tests.contract.store_driver import INTERNAL, OWN, TOOL_ERROR

T = TypeVar("T")
WORKERS = ("w1", "w2", "w3")
VERDICTS = (*["go on"] * 8, "hand back", "hand back", "postpone", "retry", "retry", "give up", "finish", "finish")
CALLS = (
    (), ("c1",), ("p1",), ("c1", "c2"), ("o1",), ("i1", "c1", "a1"), ("c1", "p1", "o1"), ("p1", "p2"),
    ("g1",), ("g1", "c1"), ("g1", "g2"),
    ("c1", "i1", "c2", "i2"), ("a1",), ("i1",), ("p1", "a1", "i1"), ("o1", "o2"), ("e1",), ("c1", "p1", "e1"),
)  # fmt: skip
"""What a model asks for. c: must not be started twice, i: idempotent, a: answered in the model step, e: the same, and
ends the run, p: waits for an approval, o: the client's, g: an agent, whose run it begins."""
AWAITS: dict[str, Any] = {"p": "approval", "o": "client_tool"}
QUEUE_OF: dict[str, str] = {"2": OWN}
"""The second call of a turn is of a tool that names a queue."""


class Walker(Clients):
    """One random walk through the store."""

    def __init__(self, redis: Any) -> None:
        super().__init__(redis)
        self.taken: set[str] = set()
        """Deliveries that reached a worker; they come again, too."""
        self.leases: list[Lease] = []
        self.started: set[str] = set()
        """Calls that must not be started again."""
        self.known: dict[tuple[str, str], list[int]] = {}
        """What a worker knows of a conversation: where each message is, and how far it has read."""

    async def worker(self, choose: Choose) -> None:
        """What workers do."""
        often, seldom = [self.claim, self.settle] * 4, [self.settle_again, self.renew, self.reserve]
        await choose([*often, *seldom])(choose)

    async def sweeper(self, choose: Choose) -> None:
        """What sweepers do, and what time does."""
        seldom = [self.deadline, self.look_at_caps, self.look_for_workers]
        await choose([*[self.time_passes] * 8, *[self.look_early] * 4, *seldom])(choose)

    async def claim(self, choose: Choose) -> None:
        """A delivery reaches a worker: for the first time mostly, or again, or late."""
        if not self.deliveries:
            return
        fresh = [each for each in self.deliveries if each.task_id not in self.taken][::-1]
        delivery = choose([*fresh, *fresh, self.deliveries[-1], self.deliveries[0]])
        worker = choose(WORKERS)
        known = self.known.setdefault((worker, delivery.conversation_id), [0])
        lease = await self.driver.try_claim(delivery, worker, nonce=choose([None, "n"]), known=known[-1])
        self.taken.add(delivery.task_id)
        if isinstance(lease, Lease):
            await self._begin(lease, known)

    async def _begin(self, lease: Lease, known: list[int]) -> None:
        """A worker got a lease: by a delivery, or in place."""
        step, call = (lease.run_id, lease.step), f"{lease.run_id}/{lease.step}"
        if lease.fence != self.current.get(step):
            assert step not in self.current, f"{call} is leased to two"
            # Who asks again for the lease that it has gets it, also behind a cancel.
            assert lease.run_id not in self.cancelled, f"{call} is begun after the cancel"
            await self._check_begun(lease, call)
        if lease.call is None:
            await self._learn(lease, known)
        self.current[step] = lease.fence
        self.leases.append(lease)

    async def _check_begun(self, lease: Lease, call: str) -> None:
        """It may begin, and was not begun before."""
        assert call not in self.started, f"{call} is started twice"
        assert lease.run_id not in self.held, f"{call} is begun in a pause"
        if lease.call is None:
            assert not await self.redis.hexists(keys.run(lease.run_id), "steer"), (
                f"{call} does not see all that was said"
            )
            return
        assert lease.call.id[0] != "o", f"{call} is the client's"
        assert lease.call.id[0] != "p" or call in self.allowed, f"{call} was not approved"
        if lease.call.id[0] not in "ig":
            self.started.add(call)

    async def _learn(self, lease: Lease, known: list[int]) -> None:
        """The worker knows the conversation now, as far as models are told of it: whatever it knew before."""
        read = 0 if lease.log.rebuilt else known.pop()
        if lease.log.rebuilt:
            known.clear()
        known += [entry.position for entry in lease.log.entries if entry.position > read]
        log = await self.driver.log(lease.run_id)
        told = [entry.position for entry in log if entry.type in MESSAGES and not entry.withdrawn]
        assert known == told, f"{lease.run_id}/{lease.step}: a worker knows {known} of {told}"
        known.append(max(read, lease.log.position))

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
        if lease.run_id in self.held:
            verdict = choose([verdict, "hand back"])
        newest = self.current.get(step) == lease.fence
        known = await self.redis.hget(keys.run(lease.run_id), "settled") == str(lease.fence).encode()
        ended = await self._has_ended(lease.run_id)
        # A tool that asks for another try, or was handed back unbegun, may be started again.
        if newest and (verdict == "retry" or (verdict == "hand back" and not flag)):
            self.started.discard(f"{lease.run_id}/{lease.step}")
        worker = choose(WORKERS)
        place = await self._place(lease, worker, choose) if verdict == "go on" else None
        try:
            settled = await self._bring(lease, verdict, choose(CALLS), flag, place)
            self.note(settled)
        except StaleLease:
            assert not newest or ended
        else:
            assert newest or known
            self.current.pop(step, None) if newest else None
            for following in settled.following:
                await self._begin(following, self.known[worker, lease.conversation_id])
        self.current.pop(step, None) if newest else None

    async def _place(self, lease: Lease, worker: str, choose: Choose) -> OfferedPlace | None:
        """A worker offers to go on with the run, mostly."""
        known = self.known.setdefault((worker, lease.conversation_id), [0])
        nonce = choose([None, "n", ""])
        return None if nonce == "" else await self.driver.place(lease, worker, nonce=nonce, known=known[-1])

    def _bring(
        self, lease: Lease, verdict: str, ids: Sequence[str], flag: bool, place: OfferedPlace | None
    ) -> Awaitable[Settled]:
        steps, tool = self.driver.store.steps, lease.call is not None
        match verdict:
            case "go on" if lease.call is not None and lease.call.id[0] == "g":
                return self._ask_agent(lease)
            case "go on" if tool:
                return self.driver.answer(lease, ends_run=flag and lease.step.endswith("2"), place=place)
            case "go on":
                asked = tuple(ToolCall(id=each, name="agent_t" if each[0] == "g" else "t") for each in ids)
                answers = tuple(
                    ToolOutcome(Message(role="tool", call_id=call_id, content="over"), ends_run=call_id[0] == "e")
                    for call_id in ids
                    if call_id[0] in "ae"
                )
                opened = tuple(
                    OpenCall(
                        call,
                        call.id[0] in "ig",
                        AWAITS.get(call.id[0]),
                        3600.0,
                        kind=REMOTE if call.id[0] == "g" else TOOL,
                        queue=None if call.id[0] == "g" else QUEUE_OF.get(call.id[1]),
                        at_hand=call.id[0] in "ci",
                    )
                    for call in asked
                    if call.id[0] not in "ae"
                )
                message = Message(role="assistant", tool_calls=asked)
                notes = (Condensed("so far", max(1, lease.log.position - 2)),) if flag and ids == ("a1",) else ()
                return steps.settle(lease, Continue(message, answers, opened, notes=notes), place=place)
            case "finish" if flag and not tool:
                return self.driver.finish(lease)
            case "finish":
                cut = (ToolCall(id="cut", name="t"),) if ids else ()
                message = Message(role="assistant", content="bye", tool_calls=cut)
                shown = Shown.NOTHING if ids else Shown.ALL
                return steps.settle(lease, Finish(None if tool else message, StopReason.MAX_TOKENS), shown=shown)
            case "give up":
                return self.driver.give_up(lease, TOOL_ERROR if flag and tool else INTERNAL)
            case "retry":
                return self.driver.retry(lease)
            case "postpone":
                return self.driver.postpone(lease)
            case _:
                return self.driver.hand_back(lease, begun=flag)

    async def _ask_agent(self, lease: Lease) -> Settled:
        """A call of an agent begins a run, waits for that, or has its answer."""
        children = self.driver.store.children
        try:
            child = await children.of(lease)
            if child is None:
                self.note(await children.begin(lease, Subagent(agent=AGENT), "look"))
                self._new(await self.driver.get(child_id(lease)))
            elif child.status.terminal:
                return await self.driver.answer(lease)
        except ChildBarred as barred:
            if barred.why == "stale":
                raise StaleLease from None
            if barred.why == "stopping":
                return await self.driver.hand_back(lease, begun=False)
            return await self.driver.answer(lease)
        except BudgetUsed:
            return await self.driver.answer(lease)
        except TimePassed:
            return await self.driver.hand_back(lease, begun=False)
        except UnknownRun:
            raise StaleLease from None
        return await self.driver.store.steps.settle(lease, Postpone(3600.0, child_id(lease), WaitReason.AGENT_RUN))

    async def renew(self, choose: Choose) -> None:
        """A worker renews what it holds, or held."""
        held = self.leases[-3:]
        for lease, answer in zip(held, await self.driver.store.steps.renew(held), strict=True):
            assert answer is not Renewal.PROLONGED or self.cancelled.get(lease.run_id, "graceful") == "graceful"

    async def reserve(self, choose: Choose) -> None:
        """The tenant has a cap in money, and a worker reserves what a call of a model may cost, or leaves it for
        later."""
        caps, held = self.driver.store.caps, [each for each in self.leases if each.call is None][-3:]
        if not held:
            return
        lease, call = choose(held), choose([1, 2])
        rates = {"requests_per_minute": choose([None, 1, 600]), "tokens_per_minute": choose([None, 100])}
        await caps.change("", CapsChange(usd_per_day=choose([None, 1.0, 5.0]), **rates))
        try:
            wait = await caps.reserve(
                lease, call, spent=choose([None, 0.1]), least=0.5, most=choose([0.5, 3.0]), tokens=100
            )
            if wait is not None:
                postponed = Postpone(wait.seconds, wait.code, WaitReason.TENANT_LIMIT)
                self.note(await self.driver.store.steps.settle(lease, postponed))
                self.current.pop((lease.run_id, lease.step), None)
        except StaleLease:
            assert self.current.get((lease.run_id, lease.step)) != lease.fence or await self._has_ended(lease.run_id)

    async def look_at_caps(self, choose: Choose) -> None:
        """A sweeper finds what the cap allows by now."""
        promoted = await self.driver.store.steps.promote(await self.driver.store.caps.allowed())
        self.note(*(moved for moved in promoted if moved is not None))

    async def look_for_workers(self, choose: Choose) -> None:
        """A sweeper finds that no worker takes from a queue of tools, or that one does."""
        self.note(*await self.driver.store.due.attend(OWN, attended=choose([True, False, False]), ready_for=-60))

    async def _has_ended(self, run_id: str) -> bool:
        return run_id not in self.runs or (await self.driver.get(run_id)).status.terminal

    async def time_passes(self, choose: Choose) -> None:
        """Something in the due index has come due, and a sweeper attends to it."""
        members = [m.decode() for m in await self.redis.zrange(keys.due("00"), 0, -1)]
        members = sorted((m for m in members if not m.endswith("/end")), key=self._age)
        # What somebody is to decide on or to answer may wait a little longer.
        soon = [member for member in members if not {"/p", "/o"} & {member[-3:-1]}]
        if members:
            await self._comes_due(choose([*soon * 5, *members]))

    async def deadline(self, choose: Choose) -> None:
        """A run's deadline passes."""
        if not self.runs:
            return
        run_id = choose(self.runs)
        if not (await self.driver.get(run_id)).status.terminal:
            await self.redis.hset(keys.run(run_id), "deadline", 2)
            await self._comes_due(f"{run_id}/end")
            assert (await self.driver.get(run_id)).status.terminal

    async def look_early(self, choose: Choose) -> None:
        """A sweeper looks at what may not be due: delivering the unclaimed again is all that it may do."""
        if not self.runs:
            return
        run_id, what = choose(self.runs), choose(["start", "end", "1", "2", "1/c1", "1/p1", "nonsense"])
        before = (await self.driver.get(run_id)).status
        if choose([True, False, False]):
            # As a gate does that has room again.
            conversation_id = (await self.driver.get(run_id)).conversation_id
            (promoted,) = await self.driver.store.steps.promote([(conversation_id, run_id, what)])
            self.note(*([promoted] if promoted else []))
        self.note(*await self.driver.sweep(run_id, what, unclaimed_after=0))
        assert (await self.driver.get(run_id)).status is before

    def _age(self, member: str) -> tuple[int, str]:
        run_id, _, what = member.partition("/")
        return self.runs.index(run_id), what

    async def _comes_due(self, member: str) -> None:
        run_id, _, what = member.partition("/")
        self.note(*await self.driver.hasten(run_id, what))
        self.current.pop((run_id, what), None)

    async def check(self) -> None:
        """What holds after every step."""
        await check_whole(self.redis)
        for run_id in self.cancelled:
            status = (await self.driver.get(run_id)).status
            assert status in (RunStatus.CANCELLING, RunStatus.CANCELLED), f"{run_id} was cancelled: {status}"

    async def drive_to_the_end(self) -> None:
        """Every run ends, and nothing was lost."""
        await self.driver.drive_to_the_end(self.runs)
        await check_whole(self.redis)
        await self.check_said()
