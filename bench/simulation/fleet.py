"""A cell of a fleet: runs go from step to step as the product has them go, and what it costs takes its time.

A run does not exist but for its next step. Whatever is scheduled for a step is void once it has another ``token``.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from bench.simulation.clock import Clock, Machine, SharingStation, Station
from bench.simulation.gate import Gate, Provider
from bench.simulation.plan import Outcome, Plan, Wait
from bench.simulation.product import IN_PLACE_SECONDS, IN_PLACE_STEPS, LEASE, MAX_LOSSES
from bench.simulation.runs import Run, Worker
from bench.simulation.tools import ToolSteps
from bench.simulation.turns import Tenant, Turns
from palaver.errors import ErrorClass, Failure
from palaver.steps.retry import MODEL_CALL
from palaver.steps.verdicts import GiveUp
from workers.loops.deaths import LOOK, PATIENCE

_FAILED = Failure.of(ErrorClass.PROVIDER_ERROR)
_REFUSED = Failure.of(ErrorClass.RATE_LIMITED)


class Fleet:
    """One cell, from its beginning on."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.costs = plan, plan.costs
        self.random = Random(plan.seed)
        self.clock = clock = Clock()
        machine = Machine(clock, plan.cores) if plan.cores else None

        def station() -> Station:
            return SharingStation(machine) if machine else Station(clock)

        self.redis = station()
        self.apis = [station() for _ in range(plan.apis)]
        self.outside = station() if machine else None
        self.workers = [Worker(station(), plan.slots) for _ in range(plan.workers)]
        self.tools = ToolSteps(plan, clock, self.redis, [station() for _ in range(plan.tool_children)])
        self.provider = Provider(clock, self.random, plan.model_seconds, spread=plan.model_spread)
        self.gate = Gate(clock, self.random, self._wake, shared=plan.shared_gate)
        tenants = {*plan.rate, *plan.weights, *plan.caps}
        self.turns = Turns(
            {name: Tenant(plan.weights.get(name, 1.0), plan.caps.get(name)) for name in tenants}, fair=plan.fair
        )
        self.runs = self._next_api = 0
        self.told = Outcome()
        for tenant, rate in plan.rate.items():
            self._submit_later(tenant, rate)
        if plan.at_once:
            self._submit_next(plan.at_once)
        self._sample(0.0)

    def go(self, until: float) -> Outcome:
        """Go on until that time."""
        self.clock.run(until)
        return self.told

    def submit(self, tenant: str, runs: int = 1) -> None:
        """Runs come in."""
        for _ in range(runs):
            self._api().do(self.costs.api_submit, self._submitted, Run(tenant))

    def kill(self, count: int) -> None:
        """So many workers die, with all that they do."""
        for worker in [each for each in self.workers if each.alive][:count]:
            worker.alive = False
            for run in worker.held:
                run.token += 1
                run.died_at = self.clock.now
                # Two looks and the patience between them; or the rest of a lease, which is renewed each third of it.
                seen = PATIENCE + self.random.random() * LOOK
                left = LEASE * (1 - self.random.random() / 3)
                self.clock.after(seen if self.plan.watches_deaths else left, self._lost, run)
            worker.held.clear()

    def start_again(self) -> None:
        """Those that died are there again."""
        for worker in self.workers:
            worker.alive = True
        self._dispatch()

    # Runs come in.

    def _api(self) -> Station:
        self._next_api = (self._next_api + 1) % len(self.apis)
        return self.apis[self._next_api]

    def _submit_later(self, tenant: str, rate: float) -> None:
        if self.clock.now >= self.plan.keeps_submitting_until or not rate:
            return
        if self.clock.now:
            self.submit(tenant)
        self.clock.after(self.random.expovariate(rate), self._submit_later, tenant, rate)

    def _submit_next(self, left: int) -> None:
        self._api().do(self.costs.api_submit, self._submitted, Run(""))
        if left > 1:
            # The client waits for the answer, which needs the API and Redis.
            self._api().do(0.0, self.clock.after, self.costs.redis_submit, self._submit_next, left - 1)

    def _submitted(self, run: Run) -> None:
        self.runs += 1
        self.redis.do(self.costs.redis_submit, self._ready, run)

    # Steps wait, and are claimed.

    def _ready(self, run: Run, first: bool = False) -> None:
        run.ready_at, run.in_place = self.clock.now, 0
        self.turns.put(run, first=first)
        self._dispatch()

    def _dispatch(self) -> None:
        while self.turns.deliveries:
            worker = max(self.workers, key=lambda each: each.room)
            if worker.room <= 0:
                return
            run = self.turns.take()
            run.worker = worker
            worker.held[run] = None
            self.redis.do(self.costs.redis_claim, self._claimed, run, run.token)

    def _claimed(self, run: Run, token: int) -> None:
        if run.token != token:
            return
        now = self.clock.now
        first = run.step == 1 and run.began_at is None
        self.told.waits.append(Wait(run.ready_at, now - run.ready_at, run.tenant, first))
        if run.died_at is not None:
            self.told.first_call_again.append(now - run.died_at)
            run.died_at = None
        run.in_place_since = now
        self._work(run)

    def _work(self, run: Run) -> None:
        assert run.worker is not None
        if run.began_at is None:
            run.began_at = self.clock.now
        run.worker.station.do(self.costs.worker * self.costs.worker_before, self._ask, run, run.token)

    def _ask(self, run: Run, token: int) -> None:
        if run.token != token:
            return
        again = self.gate.ask(run)
        if again is not None:
            self._leave(run, again)
            return
        run.out_since = None if self.gate.out_since is None else run.out_since
        self.told.begun[run.tenant] += 1
        self.told.began_at.append(self.clock.now)
        outcome, seconds = self.provider.answer(run.attempt)
        if self.outside is not None:
            self.outside.do(self.costs.outside, self._answer_after, run, token, outcome, seconds)
        else:
            self.clock.after(seconds, self._answered, run, token, outcome)

    def _answer_after(self, run: Run, token: int, outcome: str, seconds: float) -> None:
        self.clock.after(seconds, self._answered, run, token, outcome)

    def _answered(self, run: Run, token: int, outcome: str) -> None:
        if self.provider.out and outcome == "answered":
            # The connection breaks in the middle of the answer.
            outcome = "failed"
        if run.token == token and run.worker is not None:
            work = self.costs.worker * (1 - self.costs.worker_before)
            run.worker.station.do(work, self._judge, run, token, outcome)

    # What follows from the answer.

    def _judge(self, run: Run, token: int, outcome: str) -> None:
        if run.token != token:
            return
        if outcome == "answered":
            self.gate.answered(run)
            self._continue(run)
        elif outcome == "refused":
            turn = self.gate.refused(run, self.provider.retry_after)
            self._try_again(run, replace(_REFUSED, retry_after=self.provider.retry_after), turn)
        elif (turn_in_outage := self.gate.failed(run)) is None:
            self._try_again(run, _FAILED, 0.0)
        else:
            self._leave(run, turn_in_outage)

    def _try_again(self, run: Run, failure: Failure, turn: float) -> None:
        now = self.clock.now
        elapsed = now - (run.began_at if run.began_at is not None else now)
        verdict = MODEL_CALL.decide(failure, run.attempt, elapsed, random=self.random.random)
        if isinstance(verdict, GiveUp):
            self._end(run, completed=False)
            return
        run.attempt += 1
        self._let_go(run, self.costs.redis_settle)
        self._due_at(run, max(now + verdict.delay, turn))

    def _leave(self, run: Run, at: float) -> None:
        """It waits for the provider, which costs it no attempt; in an outage for as long as its patience lasts."""
        now = self.clock.now
        if self.gate.out_since is not None:
            run.out_since = now if run.out_since is None else run.out_since
            verdict = MODEL_CALL.outlast(_FAILED, at - now, now - run.out_since, other_model=False)
            if isinstance(verdict, GiveUp):
                self._end(run, completed=False)
                return
            at = now + verdict.delay
        self._let_go(run, self.costs.redis_settle)
        self._due_at(run, at)

    def _continue(self, run: Run) -> None:
        self.told.steps += 1
        run.attempt, run.began_at, run.out_since = 1, None, None
        if run.step >= self.plan.steps:
            self._end(run, completed=True)
            return
        run.step += 1
        if self.plan.tool_steps:
            self._let_go(run, self.costs.redis_settle, self._call_tool)
        elif self._goes_on(run):
            run.in_place += 1
            self.told.in_place += 1
            self.redis.do(self.costs.redis_in_place, self._followed, run, run.token)
        else:
            self._let_go(run, self.costs.redis_settle, self._ready)

    def _goes_on(self, run: Run) -> bool:
        worker, now = run.worker, self.clock.now
        assert worker is not None
        if not self.plan.in_place or run.in_place >= IN_PLACE_STEPS or now - run.in_place_since > IN_PLACE_SECONDS:
            return False
        return not self.turns.somebody_waits(now, worker.room)

    def _followed(self, run: Run, token: int) -> None:
        if run.token == token:
            self._work(run)

    def _end(self, run: Run, *, completed: bool) -> None:
        self.told.completed += completed
        self.told.failed += not completed
        self.told.ended_at = self.clock.now
        self.runs -= 1
        self._let_go(run, self.costs.redis_settle)

    def _let_go(self, run: Run, seconds: float, then: object = None) -> None:
        """The worker has settled the step, and has room again."""
        run.token += 1
        if run.worker is not None:
            del run.worker.held[run]
            run.worker = None
        self.turns.end(run.tenant)
        self.redis.do(seconds, then if callable(then) else self._nothing, run)
        self._dispatch()

    def _nothing(self, run: Run) -> None:
        """It comes to its next step some other time."""

    def _call_tool(self, run: Run) -> None:
        self.tools.call(run, self._ready)

    def _due_at(self, run: Run, at: float) -> None:
        """The step is due at that time; whatever was said before is void."""
        run.token += 1
        run.asleep = True
        self.clock.at(at, self._due, run, run.token)

    def _wake(self, run: Run, at: float) -> None:
        if run.asleep:
            self._due_at(run, at)

    def _due(self, run: Run, token: int) -> None:
        if run.token == token:
            run.asleep = False
            self.redis.do(self.costs.redis_settle, self._ready, run, True)

    def _lost(self, run: Run) -> None:
        """Somebody saw that its worker is dead."""
        self.told.taken_over += 1
        run.lost += 1
        run.worker = None
        self.turns.end(run.tenant)
        if run.lost >= MAX_LOSSES:
            self.told.failed += 1
            self.runs -= 1
        else:
            self.redis.do(self.costs.redis_settle, self._ready, run, True)

    # What is told.

    def _sample(self, redis_before: float) -> None:
        samples, now = self.told.samples, self.redis.busy
        samples["ready"].append(len(self.turns))
        samples["at the gate"].append(self.gate.waiting)
        samples["runs"].append(self.runs)
        samples["redis"].append(now - redis_before)
        samples["redis waits"].append(self.redis.waiting)
        samples["steps"].append(self.told.steps)
        samples["calls"].append(self.provider.calls)
        samples["refusals"].append(self.provider.refusals)
        samples["failures"].append(self.provider.failures)
        samples["failed"].append(self.told.failed)
        self.clock.after(1.0, self._sample, now)
