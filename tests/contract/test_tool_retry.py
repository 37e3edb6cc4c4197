"""Failed calls of tools: what is tried again, what all calls of a service wait for, and what the model reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, RetryableToolError
from palaver.steps.retry import TOOL_CALL, RetryPolicy, Rule
from palaver.store import Store
from palaver.store.redis import keys, provider_keys
from palaver.store.redis.reach import Reach, within
from palaver.store.scripting.contracts.providers import Admitted
from palaver.tools import Tool, tool
from palaver.vocabulary.step_kinds import TOOL
from tests.contract.store_driver import StoreDriver
from tests.contract.tool_worker import ToolWorker, tool_worker
from workers.steps import registry
from workers.steps.registry import step
from workers.steps.step_functions import call_tool

ONE, TWO = Reach("0000m1"), Reach("0000m2")
INTERVAL = 1.0

Worker = Callable[..., AbstractAsyncContextManager[ToolWorker]]


@pytest.fixture(scope="session")
def settings() -> Settings:
    """Probes follow each other closely."""
    return Settings(redis_url="redis://127.0.0.1:1/0", shards=1, lease_seconds=15.0, probe_interval=INTERVAL)


@pytest.fixture
def worker(store: Store, redis: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Starts tools workers."""

    @asynccontextmanager
    async def start(*tools: Tool) -> AsyncIterator[ToolWorker]:
        async with tool_worker(store, redis, settings, monkeypatch, *tools) as started:
            yield started

    return start


class Crm:
    """A service: raises what it is to, call by call, and then answers."""

    def __init__(self, *raises: BaseException) -> None:
        self.raises = list(raises)
        self.calls = 0

    def tool(self, **options: Any) -> Tool:
        """The tool that calls it."""

        async def crm() -> str:
            """Asks the CRM."""
            self.calls += 1
            if self.raises:
                raise self.raises.pop(0)
            return "found"

        return tool(**options)(crm)


def refused() -> httpx.ConnectError:
    error = httpx.ConnectError("refused, of customer 4711")
    error.__cause__ = ConnectionRefusedError(111, "refused")
    return error


def status(code: int, retry_after: str | None = None) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://crm/4711")
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return httpx.HTTPStatusError(str(code), request=request, response=httpx.Response(code, headers=headers))


async def told(driver: StoreDriver, run_id: str) -> tuple[str, str]:
    """Error class and text of the call's answer."""
    (event,) = [each for each in await driver.events(run_id) if each.type == "tool.finished"]
    return (event.data.get("error") or {}).get("class", ""), event.data["message"]["content"]


async def test_what_was_not_taken_is_tried_again_and_says_by_which_rule(worker: Worker) -> None:
    crm = Crm(refused(), status(503, "7"), status(429))
    its = crm.tool(retry=RetryPolicy())
    async with worker(its) as tools:
        run_id, (call,) = await tools.ask(its)
        first, second, third, last = await tools.follow(call)
        assert (await told(tools.driver, run_id)) == ("", "found")
        retried = [each.data for each in await tools.driver.events(run_id) if each.type == "run.retrying"]
    assert first.startswith(
        "RETRY connection: connect_refused: The connection to the tool's service failed.; again in "
    )
    assert second.startswith("RETRY provider_error: http_503: The tool's service failed to answer.; again in 7")
    assert third.startswith("RETRY rate_limited: http_429: The tool's service asks for fewer requests.; again in ")
    assert "4711" not in first + second + third
    assert last.startswith("run is running")
    assert [each["rule"] for each in retried] == [
        f"{name} of SERVICE_CALL: not taken" for name in ("connection", "provider_error", "rate_limited")
    ]
    assert crm.calls == 4


LATE = httpx.ReadTimeout("late")
TWICE = {error_class: Rule(attempts=2) for error_class in (ErrorClass.TOOL_ERROR, ErrorClass.TIMEOUT)}
FOUR_TIMES = RetryPolicy({ErrorClass.TIMEOUT: Rule(attempts=4)})


@pytest.mark.parametrize(
    ("of_step", "of_tool", "error", "calls"),
    [
        (TOOL_CALL, {}, RetryableToolError("again"), 3),
        (RetryPolicy(TWICE), {}, RetryableToolError("again"), 2),
        (RetryPolicy(), {}, RetryableToolError("again"), 1),
        (TOOL_CALL, {"idempotent": True}, LATE, 4),
        (RetryPolicy(TWICE), {"idempotent": True}, LATE, 2),
        # The policy of the tool goes first.
        (RetryPolicy(TWICE), {"retry": FOUR_TIMES}, LATE, 4),
        (RetryPolicy(TWICE), {"retry": RetryPolicy(TWICE)}, LATE, 2),
        (RetryPolicy(TWICE), {"retry": RetryPolicy()}, LATE, 1),
        # That of the step does not say that a call may be made twice.
        (RetryPolicy(TWICE), {}, LATE, 1),
    ],
)
async def test_what_stands_in_the_decorators_is_what_happens(
    worker: Worker,
    monkeypatch: pytest.MonkeyPatch,
    of_step: RetryPolicy,
    of_tool: dict[str, Any],
    error: BaseException,
    calls: int,
) -> None:
    crm = Crm(*[error] * 9)
    its = crm.tool(**of_tool)
    monkeypatch.setattr(registry, "_handlers", {})
    step(TOOL, retry=of_step)(call_tool)
    async with worker(its) as tools:
        _, (call,) = await tools.ask(its)
        await tools.follow(call)
    assert crm.calls == calls


async def test_a_run_that_backs_off_says_so_and_a_cancel_ends_it(worker: Worker) -> None:
    crm = Crm(refused())
    its = crm.tool(retry=RetryPolicy())
    async with worker(its) as tools:
        run_id, (call,) = await tools.ask(its)
        await tools.attempt(call)
        run = await tools.driver.get(run_id)
        assert run.waiting is not None
        assert (run.waiting.reason, run.waiting.attempt, run.waiting.error_class) == ("backoff", 2, "connection")
        await tools.driver.store.runs.cancel(run_id)
        assert (await tools.driver.get(run_id)).status == "cancelled"
        assert "may or may not have taken effect" in (await told(tools.driver, run_id))[1]
    assert crm.calls == 1


@pytest.mark.parametrize("error", [refused(), status(503), status(500), httpx.ReadTimeout("late"), OSError("disk")])
async def test_without_a_policy_nothing_is_tried_again_that_may_act_twice(worker: Worker, error: BaseException) -> None:
    """Two requests may be behind one tool: that the second one was refused says nothing of the first."""
    crm = Crm(error)
    its = crm.tool()
    async with worker(its) as tools:
        run_id, (call,) = await tools.ask(its)
        assert len(await tools.follow(call)) == 1
        assert (await told(tools.driver, run_id))[0]
    assert crm.calls == 1


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({"retry": RetryPolicy()}, 1),
        ({"idempotent": True}, 4),
        ({"retry": RetryPolicy({ErrorClass.TIMEOUT: Rule(attempts=2)})}, 2),
        ({"retry": RetryPolicy({ErrorClass.CONNECTION: Rule(attempts=9)})}, 1),
        ({"retry": RetryPolicy({ErrorClass.TIMEOUT: Rule(attempts=1)}), "idempotent": True}, 1),
    ],
)
async def test_what_may_have_been_taken_needs_a_word(worker: Worker, options: dict[str, Any], calls: int) -> None:
    crm = Crm(*[httpx.ReadTimeout("late") for _ in range(9)])
    its = crm.tool(**options)
    async with worker(its) as tools:
        run_id, (call,) = await tools.ask(its)
        await tools.follow(call)
        error_class, text = await told(tools.driver, run_id)
    assert (error_class, crm.calls) == ("timeout", calls)
    assert text.endswith("It may or may not have taken effect.")


async def test_the_models_words_say_that_nothing_was_taken(worker: Worker) -> None:
    crm = Crm(*[refused() for _ in range(9)])
    its = crm.tool(retry=RetryPolicy())
    async with worker(its) as tools:
        run_id, (call,) = await tools.ask(its)
        await tools.follow(call)
        text = (await told(tools.driver, run_id))[1]
    assert text == (
        "crm failed: ConnectError: refused, of customer 4711. Gave up after 4 attempts. The service has not taken the"
        " call."
    )


async def test_its_own_exceptions_have_the_classes_that_it_declares(worker: Worker) -> None:
    class Full(Exception):
        retry_after = 30

    crm = Crm(Full("no"))
    its = crm.tool(retry=RetryPolicy(), errors={Full: ErrorClass.RATE_LIMITED})
    async with worker(its) as tools:
        _, (call,) = await tools.ask(its)
        (shown, *_) = await tools.follow(call)
    assert shown.startswith("RETRY rate_limited: rate_limited: The tool's service asks for fewer requests.; again in 3")


async def test_the_policy_of_a_run_is_about_its_model_and_not_about_its_tools(worker: Worker) -> None:
    crm = Crm(*[refused() for _ in range(9)])
    its = crm.tool(retry=RetryPolicy({ErrorClass.CONNECTION: Rule(attempts=3)}))
    of_run = {"rules": {"connection": {"attempts": 1}}, "max_elapsed": 0, "tools": {"attempts": 2}}
    async with worker(its) as tools:
        _, (call,) = await tools.ask(its, retry=of_run)
        await tools.follow(call)
    assert crm.calls == 3


async def test_a_service_that_asks_to_wait_is_left_alone_by_all_its_tools(worker: Worker, redis: Any) -> None:
    one, other = Crm(status(429, "60")), Crm()
    its = one.tool(retry=RetryPolicy(), limit_key="crm", name="look_up")
    too = other.tool(limit_key="crm", name="change")
    async with worker(its, too) as tools, worker(its, too) as elsewhere:
        _, (call,) = await tools.ask(its)
        assert "RETRY rate_limited" in await tools.attempt(call)
        run_id, (late,) = await elsewhere.ask(too)
        shown = await elsewhere.attempt(late)
        assert shown.startswith(("waits 5", "waits 6"))
        assert shown.endswith("s: service_cooldown crm:cooldown")
        run = await tools.driver.get(run_id)
        assert run.waiting is not None
        assert (run.waiting.reason, run.waiting.code) == ("service_cooldown", "crm:cooldown")
        assert (one.calls, other.calls) == (1, 0)
        # A provider of that name is somebody else.
        assert not await redis.exists(provider_keys.of_gate("crm").gate)
        assert await redis.exists(provider_keys.of_gate("tool:crm").gate)


async def test_who_waits_for_its_service_holds_nothing_and_is_cancelled_at_once(worker: Worker) -> None:
    crm = Crm(status(429, "60"))
    its = crm.tool(limit_key="crm")
    async with worker(its) as tools:
        _, (call,) = await tools.ask(its)
        await tools.attempt(call)
        run_id, (late,) = await tools.ask(its)
        await tools.attempt(late)
        await tools.driver.store.runs.cancel(run_id)
        assert (await tools.driver.get(run_id)).status == "cancelled"
        assert (await told(tools.driver, run_id))[0] == "tool_denied", "it was never begun"
    assert crm.calls == 1


async def test_calls_in_flight_and_calls_in_a_minute_are_limited_for_all(worker: Worker) -> None:
    crm = Crm()
    narrow = crm.tool(name="narrow", max_in_flight=1)
    paced = crm.tool(name="paced", per_minute=1)
    async with worker(narrow, paced) as tools, worker(narrow, paced) as elsewhere:
        run_id, (call, other) = await tools.ask(narrow, "c1", "c2")
        lease = await tools.driver.claim(call)
        # It is under way, elsewhere.
        assert isinstance(await elsewhere.limiter.admit(lease, "tool:narrow", 0), Admitted)
        assert (await tools.attempt(other)).endswith("service_cooldown narrow:max_in_flight")
        await elsewhere.limiter.leave(lease, "tool:narrow", called=True)
        await tools.driver.answer(lease)
        # Whoever gave its place back had it delivered.
        ready = await tools.driver.redis.hget(keys.steps(run_id), "1/c2")
        assert b'"ready"' in ready
        _, (first, second) = await tools.ask(paced, "c1", "c2")
        assert (await tools.attempt(first)).startswith("run is running")
        assert (await elsewhere.attempt(second)).endswith("service_cooldown paced:requests_per_minute")


async def test_a_service_that_is_out_is_waited_for_by_all_and_asked_by_one(worker: Worker) -> None:
    crm = Crm(*[refused() for _ in range(5)])
    its = crm.tool(retry=RetryPolicy(), limit_key="crm")
    async with worker(its) as tools:
        runs, shown = [], []
        for _ in range(6):
            run_id, (call,) = await tools.ask(its)
            runs.append((run_id, (call,)))
            shown.append(await tools.attempt(call))
        assert [each.partition(" ")[0] for each in shown] == ["RETRY"] * 4 + ["waits"] * 2
        assert crm.calls == 5
        run = await tools.driver.get(runs[5][0])
        assert run.waiting is not None
        assert (run.waiting.code, run.waiting.error_class) == ("crm:outage", "connection")
        (waiting,) = [each for each in await tools.driver.events(runs[5][0]) if each.type == "run.waiting"]
        # In the words of nobody's call: it may be another tenant's.
        assert waiting.data["error"]["message"] == "The connection to the tool's service failed."
        while crm.calls < 6:
            await tools.again(runs[4][1][0])
        assert await told(tools.driver, runs[4][0]) == ("", "found")


@pytest.mark.parametrize(("options", "calls"), [({"retry": RetryPolicy()}, 1), ({"idempotent": True}, 2)])
async def test_an_outage_is_no_reason_to_send_again_what_may_have_been_taken(
    worker: Worker, options: dict[str, Any], calls: int
) -> None:
    out, crm = Crm(*[refused() for _ in range(4)]), Crm(status(502))
    opens = out.tool(limit_key="crm", name="opens")
    its = crm.tool(limit_key="crm", name="its", **options)
    async with worker(opens, its) as tools:
        for _ in range(4):
            _, (call,) = await tools.ask(opens)
            await tools.attempt(call)
        run_id, (call,) = await tools.ask(its)
        shown = await tools.follow(call)
        assert crm.calls == calls
        error_class, text = await told(tools.driver, run_id)
    if calls == 1:
        assert shown == ["provider_error, told to the model: run is running"]
        assert (error_class, text.endswith("It may or may not have taken effect.")) == ("provider_error", True)
    else:
        assert shown[0].endswith("service_cooldown crm:outage")


async def test_a_call_that_met_an_outage_may_have_taken_effect(worker: Worker) -> None:
    out, crm = Crm(*[refused() for _ in range(4)]), Crm(status(502))
    opens = out.tool(limit_key="crm", name="opens")
    its = crm.tool(limit_key="crm", name="its", idempotent=True)
    async with worker(opens, its) as tools:
        for _ in range(4):
            _, (call,) = await tools.ask(opens)
            await tools.attempt(call)
        run_id, (call,) = await tools.ask(its)
        assert (await tools.attempt(call)).endswith("service_cooldown crm:outage")
        await tools.driver.store.runs.cancel(run_id)
        assert (await told(tools.driver, run_id)) == (
            "tool_interrupted",
            "Cancelled after it had begun. It may or may not have taken effect.",
        )


async def test_an_outage_has_its_patience(worker: Worker) -> None:
    crm = Crm(*[refused() for _ in range(5)])
    its = crm.tool(retry=RetryPolicy(patience=RetryPolicy.parse({"patience": 0}).patience), limit_key="crm")
    async with worker(its) as tools:
        for _ in range(6):
            run_id, (call,) = await tools.ask(its)
            await tools.attempt(call)
        error_class, text = await told(tools.driver, run_id)
    assert (error_class, crm.calls) == ("connection", 5)
    assert text == (
        "The connection to the tool's service failed. Gave up: waited 0 s for the outage to end, the policy allows 0 s."
        " The service has not taken the call."
    )


async def test_tenants_take_turns_at_a_service(worker: Worker) -> None:
    """As at a provider: one that asks for much does not keep the others out."""
    crm = Crm()
    its = crm.tool(max_in_flight=1)
    async with worker(its) as tools:
        with within(ONE):
            _, (held,) = await tools.ask(its)
            lease = await tools.driver.claim(held)
            await tools.limiter.admit(lease, "tool:crm", 0)
            for _ in range(4):
                _, (call,) = await tools.ask(its)
                await tools.attempt(call)
        with within(TWO):
            run_id, (call,) = await tools.ask(its)
            await tools.attempt(call)
        line = await tools.driver.redis.zrange(provider_keys.of_gate("tool:crm").line, 0, -1)
        places = [each.decode().split("/")[1] for each in line]
        assert places.index(run_id) <= 1


async def test_a_tool_that_asks_for_it_is_tried_again_as_before(worker: Worker) -> None:
    crm = Crm(*[RetryableToolError("busy", retry_after=0) for _ in range(9)])
    its = crm.tool(limit_key="crm")
    async with worker(its) as tools:
        run_id, (call,) = await tools.ask(its)
        shown = await tools.follow(call)
        assert (await told(tools.driver, run_id)) == ("tool_error", "busy. Gave up after 3 attempts.")
        retried = [each.data["rule"] for each in await tools.driver.events(run_id) if each.type == "run.retrying"]
    assert retried == ["tool_error: the tool asks for it"] * 2
    assert len(shown) == crm.calls == 3


async def test_who_declares_nothing_asks_nobody(worker: Worker, redis: Any) -> None:
    its = Crm().tool()
    async with worker(its) as tools:
        assert not tools.limiter.guards_services
        _, (call,) = await tools.ask(its)
        await tools.attempt(call)
        assert await redis.keys("{palaver:provider:*") == []
