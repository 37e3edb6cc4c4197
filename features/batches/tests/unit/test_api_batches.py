"""Batches over HTTP, and how they go on: behind a window, once a cell, whoever dies."""

from __future__ import annotations

import asyncio
import csv
import io
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from features.batches import batch_keys, runner
from features.batches.keeping import submission_of
from features.batches.problems import UnknownBatch
from features.batches.progress import BatchProgress
from features.batches.runner import BatchRunner
from palaver.errors import ErrorClass, Failure
from palaver.errors.classification import classify
from palaver.feature import features
from palaver.operations import Backend
from palaver.schemas.models import Message, Usage
from palaver.steps.verdicts import Finish, GiveUp
from palaver.store import Store
from palaver.store.sides import sides
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import limit_of
from tests.contract.clock import Clock, TurnedDatabase, turned_clock
from tests.unit.api_world import AGENT, SETTINGS, World, assert_problem, world
from tests.unit.mortal_redis import Killed, MortalRedis

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()
A: dict[str, Any] = {**AGENT, "name": "a"}
B: dict[str, Any] = {**AGENT, "name": "b"}
SCORER: dict[str, Any] = {**AGENT, "name": "judge", "response_format": {"type": "json_object"}}


class Batching:
    """An API with batches, a clock to turn, and a runner that looks when it is told to."""

    def __init__(self, api: World, clock: Clock) -> None:
        self.api = api
        self.clock = clock
        self.runner = BatchRunner(api.app.state.backend)
        self.finished: set[str] = set()

    async def create(self, items: int | list[dict[str, Any]] = 3, **changes: Any) -> dict[str, Any]:
        asked = items if isinstance(items, list) else [{"input": f"question {n}"} for n in range(items)]
        body = {"agents": [A], "items": asked, **changes}
        answer = await self.api.client.post("/v1/batches", json=body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    async def read(self, batch: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = (await self.api.client.get(f"/v1/batches/{batch['id']}")).json()
        return found

    async def results(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        path = f"/v1/batches/{batch['id']}/results?limit=2"
        while path:
            answer = await self.api.client.get(path)
            found += answer.json()["data"]
            path = answer.headers.get("link", "").partition(">")[0][1:]
        return found

    async def look(self) -> None:
        self.clock.now += 5
        await self.runner.look()

    async def runs(self, status: str = "queued") -> list[dict[str, Any]]:
        answer = await self.api.client.get(f"/v1/runs?status={status}&limit=200")
        found: list[dict[str, Any]] = answer.json()["data"]
        return found[::-1]

    async def answer(self, run: dict[str, Any], text: str = "done") -> None:
        """Let the model answer, for a cent."""
        usage = Usage(input_tokens=7, output_tokens=4, model_calls=1, cost_usd=0.01)
        verdict = Finish(Message(role="assistant", content=text), StopReason.END_TURN, usage=usage)
        await self.api.store.steps.settle(await self.api.claim(run), verdict)

    async def answer_all(self, text: str = "done") -> int:
        """Answer what waits, and look. Returns how many that were."""
        waiting = await self.runs()
        for run in waiting:
            await self.answer(run, text)
        await self.look()
        return len(waiting)


@asynccontextmanager
async def batching(settings: Any = SETTINGS) -> AsyncIterator[Batching]:
    with turned_clock(NOON) as clock:
        async with world(settings, server=TurnedDatabase()) as api:
            await api.meet_worker()
            yield Batching(api, clock)


@pytest.mark.slow
async def test_each_agent_is_asked_each_item_as_often_as_one_says_behind_a_window() -> None:
    async with batching() as each:
        made = await each.create(3, agents=[A, B], repeats=2, window=5, tags=["mine"], name="matrix")
        assert (made["state"], made["items"], made["cells"], made["begun"]) == ("running", 3, 12, 0)
        answered = []
        await each.look()
        while waiting := await each.answer_all():
            answered.append(waiting)
        assert answered == [5, 5, 2]
        done = await each.read(made)
        assert (done["state"], done["begun"], done["in_flight"], done["ended"]) == ("done", 12, 0, 12)
        totals = {total["agent"]: total for total in done["totals"]}
        assert totals["a"]["ended"] == totals["b"]["ended"] == {"completed": 6}
        assert (totals["a"]["cost_usd"], totals["a"]["input_tokens"]) == (0.06, 42)
        results = await each.results(made)
        assert [result["cell"] for result in results] == [*range(12)]
        asked = {(result["item"], result["agent"], result["repeat"]) for result in results}
        assert asked == {(item, agent, repeat) for item in "012" for agent in "ab" for repeat in (1, 2)}
        assert len({result["run_id"] for result in results}) == 12
        assert {result["output"] for result in results} == {"done"}
        run = (await each.api.client.get(f"/v1/runs/{results[0]['run_id']}")).json()
        assert (run["tags"], run["priority"]) == (["mine", f"batch:{made['id']}"], 8)


async def test_items_come_in_parts_and_a_part_that_is_sent_again_changes_nothing() -> None:
    async with batching() as each:
        made = await each.create(2, complete=False)
        path = f"/v1/batches/{made['id']}/items"
        part = {"offset": 2, "items": [{"input": "more", "id": "third"}], "complete": False}
        for _ in range(2):
            answer = await each.api.client.post(path, json=part)
            assert (answer.status_code, answer.json()["items"]) == (200, 3)
        await each.look()
        assert await each.answer_all() == 3
        assert (await each.read(made))["state"] == "open", "it waits for more"
        assert_problem(await each.api.client.post(path, json={**part, "offset": 4}), 409, "batch_offset")
        last = {"offset": 3, "items": [], "complete": True}
        for _ in range(2):
            assert (await each.api.client.post(path, json=last)).json()["state"] == "running"
        await each.look()
        assert (await each.api.client.post(path, json=last)).json()["state"] == "done"
        assert (await each.read(made))["state"] == "done"
        assert [result["item"] for result in await each.results(made)] == ["0", "1", "third"]


async def test_the_same_key_again_is_the_same_batch() -> None:
    async with batching() as each:
        body, headers = {"agents": [A], "items": [{"input": "hello"}]}, {"Idempotency-Key": "once"}
        answers = [await each.api.client.post("/v1/batches", json=body, headers=headers) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 200]
        assert answers[0].json() == answers[1].json()
        other = await each.api.client.post("/v1/batches", json={**body, "repeats": 2}, headers=headers)
        assert_problem(other, 422, "idempotency_key_reused")


async def test_what_failed_is_begun_again_and_nothing_else() -> None:
    async with batching() as each:
        made = await each.create(3)
        await each.look()
        first, *others = await each.runs()
        verdict = GiveUp(Failure.of(ErrorClass.AUTHENTICATION), StopReason.ERROR)
        await each.api.store.steps.settle(await each.api.claim(first), verdict)
        assert await each.answer_all() == len(others) == 2
        done = await each.read(made)
        assert (done["state"], done["totals"][0]["ended"]) == ("done", {"completed": 2, "failed": 1})
        (failed,) = [each for each in await each.results(made) if each["status"] == "failed"]
        assert (failed["error_class"], failed["attempt"]) == ("authentication", 1)
        again = (await each.api.client.post(f"/v1/batches/{made['id']}/retry")).json()
        assert (again["state"], again["ended"], again["begun"]) == ("running", 2, 2)
        await each.look()
        assert await each.answer_all() == 1
        done = await each.read(made)
        assert (done["state"], done["totals"][0]["ended"]) == ("done", {"completed": 3})
        attempts = {each["cell"]: each["attempt"] for each in await each.results(made)}
        assert attempts == {0: 1, 1: 1, 2: 1, failed["cell"]: 2}


async def test_a_cancel_begins_nothing_more_and_ends_what_is_under_way() -> None:
    async with batching() as each:
        made = await each.create(6, window=2)
        await each.look()
        assert_problem(await each.api.client.delete(f"/v1/batches/{made['id']}"), 409, "batch_active")
        cancelled = (await each.api.client.post(f"/v1/batches/{made['id']}/cancel")).json()
        assert cancelled["state"] == "cancelling"
        for _ in range(2):
            await each.look()
        done = await each.read(made)
        assert (done["state"], done["begun"], done["ended"]) == ("cancelled", 2, 2)
        assert {run["status"] for run in await each.runs("cancelled")} == {"cancelled"}
        assert not await each.runs()
        assert (await each.api.client.delete(f"/v1/batches/{made['id']}")).status_code == 204
        for method, path in (("GET", ""), ("GET", "/results"), ("POST", "/cancel"), ("POST", "/retry"), ("DELETE", "")):
            answer = await each.api.client.request(method, f"/v1/batches/{made['id']}{path}")
            assert_problem(answer, 404, "batch_not_found")
        redis: Any = each.api.redis
        left = {name async for name in redis.scan_iter("{palaver:batches}:*")}
        assert left == {b"{palaver:batches}:events", b"{palaver:batches}:events:"}, "what webhooks may be to hear stays"


async def test_one_that_was_cancelled_before_any_run_began_goes_on_when_it_is_retried() -> None:
    async with batching() as each:
        made = await each.create(2)
        for verb, state in (("cancel", "cancelled"), ("retry", "running")):
            assert (await each.api.client.post(f"/v1/batches/{made['id']}/{verb}")).status_code == 200
            await each.look()
            assert (await each.read(made))["state"] == state
        assert await each.answer_all() == 2
        assert (await each.read(made))["state"] == "done"


async def test_one_whose_items_never_end_is_cancelled_a_day_after_the_last_of_them() -> None:
    async with batching() as each:
        day, path = limit_of("batch_open"), "/v1/batches"
        without = await each.create(0, complete=False)
        made = await each.create(1, complete=False)
        await each.look()
        assert await each.answer_all() == 1
        each.clock.now += day - 60
        answer = await each.api.client.post(f"{path}/{made['id']}/items", json={"offset": 1, "items": [{"input": "x"}]})
        assert answer.status_code == 200, answer.text
        await each.look()
        assert await each.answer_all() == 1
        each.clock.now += 60
        await each.look()
        states = {(await each.read(batch))["state"] for batch in (without, made)}
        assert states == {"cancelled", "open"}, "the time begins anew with each part"
        each.clock.now += day
        await each.look()
        over = await each.read(made)
        assert (over["state"], over["ended"], over["reason"]) == (
            "cancelled",
            2,
            "No items came for 24 hours, and none of them was the last.",
        )
        late = await each.api.client.post(f"{path}/{made['id']}/items", json={"offset": 2, "items": [{"input": "x"}]})
        assert_problem(late, 409, "batch_offset")
        again = (await each.api.client.post(f"{path}/{made['id']}/retry")).json()
        assert (again["state"], again["reason"]) == ("running", None)
        await each.look()
        assert (await each.read(made))["state"] == "done"


async def test_a_scorer_judges_each_answer() -> None:
    async with batching() as each:
        asked = [{"input": "2 + 2?", "expected": "4"}, {"input": "3 + 3?", "expected": "6"}]
        made = await each.create(asked, scorer=SCORER)
        await each.look()
        for run in await each.runs():
            await each.answer(run, "4" if run["input_preview"] == "2 + 2?" else "7")
        await each.look()
        for run in await each.runs():
            said = (await each.api.client.get(f"/v1/conversations/{run['conversation_id']}/messages")).json()["data"]
            words = said[0]["content"]
            right = "<expected>\n4\n</expected>\n\n<answer>\n4\n</answer>" in words
            await each.answer(run, orjson.dumps({"pass": right, "score": float(right)}).decode())
        await each.look()
        done = await each.read(made)
        assert (done["state"], done["totals"][0]["scored"], done["totals"][0]["passed"]) == ("done", 2, 1)
        verdicts = [result["verdict"] for result in await each.results(made)]
        assert verdicts == [{"pass": True, "score": 1.0}, {"pass": False, "score": 0.0}]


async def test_an_item_that_is_too_long_to_be_judged_holds_up_no_other_one() -> None:
    long = {"input": "x" * (limit_of("input_text") - 5)}
    async with batching(SETTINGS.model_copy(update={"max_body": 1_000_000})) as each:
        made = await each.create([{"input": "2 + 2?"}, long], scorer=SCORER)
        await each.look()
        assert await each.answer_all("4") == 2
        assert await each.answer_all('{"pass": true}') == 1
        done = await each.read(made)
        assert (done["state"], done["totals"][0]["scored"]) == ("done", 1)
        found = [(result["status"], result["code"]) for result in await each.results(made)]
        assert found == [("completed", None), ("completed", "too_long")]
        body = {"agents": [A], "items": [long], "scorer": SCORER}
        answer = await each.api.client.post("/v1/batches", json=body)
        assert_problem(answer, 422, "validation_error", "/items/0/input")


async def test_where_a_cell_cannot_be_submitted_the_others_are_and_no_content_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(batch_id: str, head: Any, agent: Any, item: Any) -> Any:
        wrong = {"priority": "a secret"} if item.input == "question 0" else {}
        return submission_of(batch_id, head.model_copy(update=wrong), agent, item)

    async with batching() as each:
        made = await each.create(3)
        with monkeypatch.context() as patch:
            patch.setattr(runner, "submission_of", broken)
            await each.look()
        assert len(await each.runs()) == 2
        assert "a batch does not go on: ValidationError" in caplog.text
        assert "a secret" not in caplog.text
        each.clock.now += 30
        await each.look()
        assert await each.answer_all() == 3
        assert (await each.read(made))["totals"][0]["ended"] == {"completed": 3}


async def test_an_item_that_cannot_be_read_holds_up_no_other_one() -> None:
    async with batching() as each:
        made = await each.create(3)
        redis: Any = each.api.redis
        await redis.hset(batch_keys.of_batch("", made["id"]).items, "1", "{")
        await each.look()
        assert await each.answer_all() == 2
        assert (await each.read(made))["state"] == "done"
        results = await each.results(made)
        assert [(result["status"], result["code"]) for result in results] == [
            ("completed", None),
            ("unknown", "corrupt_record"),
            ("completed", None),
        ]


async def test_one_that_nobody_can_read_ends_and_can_be_removed() -> None:
    async with batching() as each:
        made, other = await each.create(3), await each.create(1)
        redis: Any = each.api.redis
        batch = batch_keys.of_batch("", made["id"]).batch
        order = await redis.hget(batch, "order")
        await redis.hset(batch, "order", "{")
        await each.look()
        shown = await each.read(made)
        assert (shown["state"], shown["cells"], shown["totals"]) == ("running", 0, [])
        assert "It fails if none can for 1 hour" in shown["reason"]
        listed = (await each.api.client.get("/v1/batches")).json()["data"]
        assert {batch["id"] for batch in listed} == {made["id"], other["id"]}
        # A newer version can read it: it goes on.
        await redis.hset(batch, "order", order)
        each.clock.now += 30
        await each.look()
        assert (await each.read(made))["reason"] is None
        await redis.hset(batch, "order", "{")
        for seconds in (30, 1800, 1830):
            each.clock.now += seconds
            await each.look()
        shown = await each.read(made)
        assert (shown["state"], shown["in_flight"]) == ("failed", 0)
        assert shown["reason"].endswith("no more of its runs are begun. Those under way go on.")
        due, _ = await each.api.store.part(BatchProgress).due()
        assert ("", made["id"]) not in due
        retried = await each.api.client.post(f"/v1/batches/{made['id']}/retry")
        assert retried.json()["state"] == "failed"
        removed = await each.api.client.delete(f"/v1/batches/{made['id']}")
        assert removed.status_code == 204
        assert not await redis.exists(batch)


async def test_one_that_nobody_can_read_ends_at_once_when_it_is_cancelled() -> None:
    async with batching() as each:
        made = await each.create(3)
        redis: Any = each.api.redis
        await each.look()
        await redis.hset(batch_keys.of_batch("", made["id"]).flight, "0", "{")
        each.clock.now += 30
        await each.look()
        cancelled = await each.api.client.post(f"/v1/batches/{made['id']}/cancel")
        assert cancelled.json()["state"] == "cancelling"
        each.clock.now += 30
        await each.look()
        assert (await each.read(made))["state"] == "failed"
        assert (await each.api.client.delete(f"/v1/batches/{made['id']}")).status_code == 204


@pytest.mark.slow
async def test_the_table_is_there_as_csv_and_as_lines_of_json() -> None:
    async with batching() as each:
        made = await each.create(2)
        await each.look()
        await each.answer_all("=cmd()")
        path = f"/v1/batches/{made['id']}/results"
        table = await each.api.client.get(path, headers={"Accept": "text/csv"})
        rows = [*csv.DictReader(io.StringIO(table.text))]
        assert [(row["item"], row["agent"], row["status"], row["output"]) for row in rows] == [
            ("0", "a", "completed", "'=cmd()"),
            ("1", "a", "completed", "'=cmd()"),
        ]
        lines = await each.api.client.get(path, headers={"Accept": "application/x-ndjson"})
        assert [orjson.loads(line)["output"] for line in lines.text.splitlines()] == ["=cmd()", "=cmd()"]
        whole = await each.api.client.get(path)
        assert {answer.headers["cache-control"] for answer in (table, lines, whole)} == {"no-store"}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"agents": [], "items": [{"input": "x"}]}, "/agents"),
        ({"agents": [A], "items": []}, "/items"),
        ({"agents": [A, {**B, "tools": ["abacus"]}], "items": [{"input": "x"}]}, "/agents/1/tools/0"),
        ({"agents": ["nobody"], "items": [{"input": "x"}]}, "/agents/0"),
        ({"agents": [A], "items": [{"input": "x"}, {"input": " "}]}, "/items/1/input"),
        ({"agents": [A], "items": [{"input": "x"}], "scorer": "nobody"}, "/scorer"),
        ({"agents": [A], "items": [{"input": "x"}], "repeats": 101}, "/repeats"),
        ({"agents": [A], "items": [{"input": "x"}], "window": 201}, "/window"),
        ({"agents": [A], "items": [{"input": "x"}], "tags": [f"t{n}" for n in range(32)]}, "/tags"),
    ],
)
async def test_what_is_wrong_is_said_when_it_is_made(body: dict[str, Any], pointer: str) -> None:
    async with batching() as each:
        answer = await each.api.client.post("/v1/batches", json=body)
        assert answer.status_code == 422, answer.text
        assert pointer in [fault["pointer"] for fault in answer.json()["errors"]], answer.text


async def test_more_than_there_may_be_is_refused() -> None:
    async with batching() as each:
        made = await each.create(1, agents=[A, B], repeats=100, complete=False)
        redis: Any = each.api.redis
        most = limit_of("batch_cells") // 200
        await redis.hset(batch_keys.of_batch("", made["id"]).batch, "items", most)
        more = {"offset": most, "items": [{"input": "one more"}]}
        answer = await each.api.client.post(f"/v1/batches/{made['id']}/items", json=more)
        assert_problem(answer, 409, "batch_full")
        await redis.zadd(batch_keys.batches(""), {f"batch_{n:024x}": n for n in range(limit_of("batches"))})
        assert (await each.create(1))["state"] == "running", "those whose retention is over do not count"


async def test_no_room_is_waited_for_and_a_refusal_is_a_result() -> None:
    async with batching(SETTINGS.model_copy(update={"max_runs": 2})) as each:
        await each.api.client.put("/v1/agents/support", json=AGENT)
        made = await each.create(4, agents=["support"])
        await each.look()
        assert (await each.read(made))["in_flight"] == 4
        assert len(await each.runs()) == 2
        for run in await each.runs():
            await each.answer(run)
        await each.api.client.delete("/v1/agents/support")
        await each.look()
        done = await each.read(made)
        assert (done["state"], done["totals"][0]["ended"]) == ("done", {"completed": 2, "refused": 2})
        refused = [result for result in await each.results(made) if result["status"] == "refused"]
        assert {result["code"] for result in refused} == {"unknown_agent"}


async def test_a_run_that_was_submitted_is_known_though_it_would_be_refused_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with batching() as each:
        await each.api.client.put("/v1/agents/support", json=AGENT)
        made = await each.create(2, agents=["support"])

        async def dies(*_: Any, **__: Any) -> bool:
            raise Killed

        with monkeypatch.context() as patch:
            submit_all = each.runner._submit_all

            async def die_behind(*args: Any) -> float:
                patch.setattr(each.runner._progress, "advance", dies)
                return await submit_all(*args)

            patch.setattr(each.runner, "_submit_all", die_behind)
            with pytest.raises(Killed):
                await each.look()
        await each.api.client.delete("/v1/agents/support")
        each.clock.now += 30
        await each.look()
        assert await each.answer_all() == 2
        assert (await each.read(made))["totals"][0]["ended"] == {"completed": 2}


class Fleet:
    """Processes that go on with batches, a new one for each that has died."""

    def __init__(self, api: World, chance: float, seed: int) -> None:
        self._api = api
        self._chance = chance
        self._dice = random.Random(seed)
        self.deaths = 0

    def process(self) -> BatchRunner:
        backend: Backend = self._api.app.state.backend
        redis = self._api.server.client(MortalRedis)
        redis.chance, redis.dice = self._chance, self._dice
        changed = {name: getattr(backend, name) for name in backend.__dataclass_fields__ if not name.startswith("_")}
        return BatchRunner(Backend(**{**changed, "store": Store(redis, backend.settings)}))

    async def look(self, runner: BatchRunner) -> BatchRunner:
        try:
            await runner.look()
        except Killed:
            self.deaths += 1
            return self.process()
        return runner


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "items", "chance"), [(3, 40, 0.02), pytest.param(5, 600, 0.02, marks=pytest.mark.chaos)]
)
async def test_each_cell_is_one_run_whoever_dies(seed: int, items: int, chance: float) -> None:
    async with batching() as each:
        made = await each.create(items, agents=[A, B], window=8)
        fleet, total = Fleet(each.api, chance, seed), items * 2
        two, runs = [fleet.process(), fleet.process()], set[str]()
        for _ in range(total * 20):
            each.clock.now += 11
            two = list(await asyncio.gather(*map(fleet.look, two)))
            waiting = await each.runs()
            assert len(waiting) <= 8, "more than the window"
            for run in waiting:
                runs.add(run["id"])
                await each.answer(run)
            if (await each.read(made))["state"] == "done":
                break
        done = await each.read(made)
        assert (done["state"], done["ended"]) == ("done", total)
        assert [total["ended"] for total in done["totals"]] == [{"completed": items}] * 2
        results = await each.results(made)
        assert [result["cell"] for result in results] == [*range(total)]
        assert sorted(runs) == sorted(result["run_id"] for result in results), "a run for each cell, and no other one"
        assert fleet.deaths >= total // 20
        print(f"{total} cells, {fleet.deaths} deaths")


def test_a_batch_that_is_not_there_is_state_that_was_lost() -> None:
    failure = classify(UnknownBatch("x"))
    assert (failure.error_class, failure.code) == (ErrorClass.INTERNAL, "state_lost")
    assert features()["batches"].due == batch_keys.BATCHES_DUE
    assert sides()["batches"].section == 7
