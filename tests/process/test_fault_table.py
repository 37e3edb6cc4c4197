"""Failures judged right: each kind of fault of a provider has its class, calls, delays, end and error object. What each
status, body and wording means is in the units (test_classify*.py, and those of the protocols).

All rows (tests/process/faults), streamed and not, go to one cluster at the same time, each to a provider of its own, so
that the cool-down of one is not that of another. A delay is judged twice: the event that announces it must have the
policy's number, and by the model server's ledger the next call comes no earlier than that, and hardly later.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import httpx
import orjson
import pytest

from tests.model_server import LedgerEntry
from tests.process.checks import check
from tests.process.cluster import Cluster, stream
from tests.process.faults import BY_PROTOCOL, POLICY, TABLE, Error, Row
from tests.redis_cluster import ON_CLUSTER

pytestmark = [pytest.mark.process, pytest.mark.long]

CASES = [(row, form) for row in TABLE for form in row.forms]
PACE = 0.04
"""Seconds between two submissions: their retries must not all be due behind the crowd that they came with."""
LONGEST = 50
"""Seconds that a run may take, so that one that hangs does not keep the others from being judged."""
ROUNDING = 0.002
"""The store counts in whole milliseconds."""
LONG = 2000
"""Characters that a failure says of one case."""
LATE = 30.0
"""Seconds that a call may come later than a tenth of its delay allows: the machine may be busy with other things. A
retry that is not delivered is not made at all."""
MOSTLY_LATE = 0.5
"""Seconds for most of them, beside what a first call takes: half of those after which a sweeper looks for steps that
were delivered and are not taken, or are in a shard that is no more its own."""
WORKERS = 2
LEASE = 30.0
"""Seconds: no worker dies here, and one that has to wait for the processor must not be taken for dead."""


@dataclass(frozen=True)
class Outcome:
    """What became of a run, on every path."""

    provider: str
    submitted: dict[str, Any]
    """The answer to the submission, which waited for the end."""
    read: dict[str, Any]
    listed: dict[str, Any]
    events: Sequence[dict[str, Any]]
    calls: Sequence[LedgerEntry]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """The data of the events of this type."""
        return [event["data"] for event in self.events if event["event"] == kind]

    def tries(self) -> list[dict[str, Any]]:
        """The attempts of model steps."""
        return [data for data in self.of_type("step.started") if "/" not in data["step"]]

    def waits(self) -> Iterator[tuple[float, float]]:
        """Of each retry: the seconds that were announced, and those from then until the provider was asked again."""
        asked_at = [call.at for call in self.calls] or [moment(each["at"]) for each in self.tries()]
        for retry in self.of_type("run.retrying"):
            yield retry["delay"], asked_at[retry["attempt"]] - moment(retry["at"])


def moment(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def place(data: Mapping[str, Any]) -> tuple[str, int]:
    """The attempt that an event is about."""
    return data["step"], data["attempt"]


def refuses_the_key(row: Row) -> bool:
    """Whether each worker calls once: another one may have a better key."""
    return row.error is not None and row.error.cls == "authentication"


def name_of(row: Row, form: bool) -> str:
    """The name of a case, and of its provider."""
    return f"{row.name}-{'stream' if form else 'whole'}"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What became of each case; whatever ran has ended."""
    cluster = Cluster(tmp_path_factory.mktemp("faults"), lease=LEASE)
    with ExitStack() as sockets:
        with cluster.providers_path.open("a") as file:
            file.writelines(providers(cluster.stack.model_url, sockets))
        with cluster:
            for _ in range(1, WORKERS):
                cluster.start("worker")
            cluster.mark_logs()
            found = gather(cluster, asyncio.run(submit_all(cluster)))
            check(cluster)
    return found


def providers(model_url: str, sockets: ExitStack) -> Iterator[str]:
    """An entry of the providers file for each case."""
    closed = sockets.enter_context(socket.socket())
    closed.bind(("127.0.0.1", 0))
    full = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    for _ in range(2):
        # Nobody accepts them: the queue is full, and whoever comes next gets no answer.
        waiting = sockets.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(full.getsockname())
    places = {
        "url": model_url,
        "tls": model_url.replace("http", "https"),
        "closed": f"http://127.0.0.1:{closed.getsockname()[1]}",
        "full": f"http://127.0.0.1:{full.getsockname()[1]}",
    }
    for row, form in CASES:
        yield f"\n[providers.{toml(name_of(row, form))}]\n"
        for name, value in {"base_url": "{url}/v1", **row.provider}.items():
            yield f"{name} = {toml(value.format(**places) if isinstance(value, str) else value)}\n"


def toml(value: Any) -> str:
    """A table, text or number."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {toml(each)}" for name, each in value.items()) + " }"
    return orjson.dumps(value).decode()


async def submit_all(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The answer to each submission; it comes when the run has ended."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=cluster.stack.url, timeout=70, limits=limits, trust_env=False) as http:

        async def submit(row: Row, form: bool) -> dict[str, Any]:
            raw = row.raw(form)
            text = "hello" if raw is None else f"hello [[raw {orjson.dumps(raw).decode()}]]"
            agent = {"retry": POLICY, "stream": form, **row.agent}
            model = f"{name_of(row, form)}/{row.script}"
            body = cluster.body(model, text, tools=row.tools, agent=agent, tags=["table"])
            body["deadline"] = (datetime.now(UTC) + timedelta(seconds=LONGEST)).isoformat()
            answer = await http.post("/v1/runs", json=body, headers={"Prefer": "wait=60"})
            assert answer.status_code == 200, f"{name_of(row, form)}: {answer.text[:300]}"
            run: dict[str, Any] = answer.json()
            return run

        waiting = {}
        for case in CASES:
            waiting[name_of(*case)] = asyncio.create_task(submit(*case))
            await asyncio.sleep(PACE)
        return {name: await run for name, run in waiting.items()}


def gather(cluster: Cluster, submitted: Mapping[str, dict[str, Any]]) -> dict[str, Outcome]:
    """Everything that can be known of the runs."""
    cluster.submitted = [run["id"] for run in submitted.values()]
    calls: dict[str, list[LedgerEntry]] = {run_id: [] for run_id in cluster.submitted}
    for call in cluster.model_calls():
        calls[call.run or ""].append(call)
    listed: dict[str, dict[str, Any]] = {}
    page: dict[str, Any] = {"has_more": True}
    while page["has_more"]:
        after = {"cursor": page["next_cursor"]} if listed else {}
        page = cluster.http.get("/v1/runs", params={"tag": "table", "limit": 200, **after}).json()
        listed |= {run["id"]: run for run in page["data"]}
    return {
        name: Outcome(
            provider=name,
            submitted=run,
            read=cluster.http.get(f"/v1/runs/{run['id']}").json(),
            listed=listed[run["id"]],
            events=[event for _, event in stream(cluster.http, f"/v1/runs/{run['id']}/events")],
            calls=calls[run["id"]],
        )
        for name, run in submitted.items()
    }


def test_the_table_has_every_class_that_a_provider_can_cause_in_each_protocol() -> None:
    assert len({name_of(*case) for case in CASES}) == len(CASES)
    for rows in BY_PROTOCOL.values():
        ends = {row.error.cls for row in rows if row.error} | {row.stop_reason for row in rows}
        assert ends >= POLICY["rules"].keys()


@pytest.mark.parametrize("protocol", BY_PROTOCOL)
def test_each_fault_ends_its_run_as_it_must_and_says_the_same_everywhere(
    protocol: str, outcomes: dict[str, Outcome]
) -> None:
    assert wrong(protocol, outcomes, check_end) == {}


@pytest.mark.parametrize("protocol", BY_PROTOCOL)
def test_each_fault_is_met_as_often_and_as_late_as_the_policy_says(protocol: str, outcomes: dict[str, Outcome]) -> None:
    assert wrong(protocol, outcomes, check_tries) == {}


def wrong(
    protocol: str, outcomes: Mapping[str, Outcome], judge: Callable[[Row, bool, Outcome], None]
) -> dict[str, str]:
    """Of the faults of a protocol in all their forms, those that were not met as their row says, and why not."""
    found = {}
    cases = [(row, form) for row, form in CASES if row in BY_PROTOCOL[protocol]]
    for row, form in cases:
        name = name_of(row, form)
        try:
            judge(row, form, outcomes[name])
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:LONG]
    return found


def check_end(row: Row, form: bool, seen: Outcome) -> None:
    """How the run ended, and what says so."""
    run, (finished,) = seen.read, seen.of_type("run.finished")
    assert (run["status"], run["stop_reason"], run["output"]) == (row.status, row.stop_reason, row.output)
    assert (finished["status"], finished["stop_reason"]) == (row.status, row.stop_reason)
    assert seen.submitted == seen.listed == run
    assert finished["error"] == run["error"]
    assert (run["error"] is not None) == (row.status == "failed")
    if row.error is not None and run["error"] is not None:
        check_error(run["error"], row.error, seen, row.tries)
    told = [data["error"] for data in seen.of_type("tool.finished") if data["error"]]
    assert [error["class"] for error in told] == ([row.told_to_model] if row.told_to_model else [])
    assert all(error["recoverable"] for error in told)


def check_tries(row: Row, form: bool, seen: Outcome) -> None:
    """How often the provider was asked, when, and what of the tries was seen."""
    retries = seen.of_type("run.retrying")
    if refuses_the_key(row):
        # Each worker asks, and may once more, before it hears that the others' keys are no better.
        assert 1 <= len(seen.calls) <= 2 * WORKERS
    else:
        assert len(seen.tries()) == row.tries, seen.events
        assert len(seen.calls) == (row.tries if row.calls is None else row.calls), retries
    assert [retry["attempt"] for retry in retries] == [i for i, _ in enumerate(row.delays, 1)]
    for retry, (least, most) in zip(retries, row.delays, strict=True):
        assert least - ROUNDING <= retry["delay"] <= most + ROUNDING
        assert row.error is not None
        check_error(retry["error"], row.error, seen, retry["attempt"])
    for announced, waited in seen.waits():
        assert announced - ROUNDING <= waited <= announced * 1.1 + LATE
    # A delta that is still on its way when the attempt settles comes too late: it is withdrawn, and nobody saw it.
    not_kept = {place(retry) for retry in retries} | ({("1", row.tries)} if row.output is None else set())
    shown = {place(delta) for delta in seen.of_type("message.delta")} & not_kept
    discarded = {place(data) for data in seen.of_type("message.discarded")}
    assert shown <= discarded <= not_kept
    assert form or not discarded
    assert shown or not row.withdrawn


def check_error(error: Mapping[str, Any], row: Error, seen: Outcome, attempt: int) -> None:
    """The whole error object is as the row says."""
    refused = row.cls == "authentication"
    message, last = error["message"], refused or attempt == len(seen.tries())
    provider_said = (error["provider"] or {}).get("message")
    assert error == {
        "class": row.cls,
        "code": f"{seen.provider}{row.code}" if row.code.startswith(".") else row.code,
        "message": message,
        "source": "model",
        "retryable": row.retryable,
        "recoverable": False,
        "step": "1",
        "attempt": attempt,
        "provider": {
            "name": seen.provider,
            "model": seen.read["model"].partition("/")[2],
            "http_status": row.http,
            "request_id": f"req-{seen.calls[-1 if refused else attempt - 1].n}" if row.request == "" else row.request,
            "message": provider_said,
        },
        "user_action": row.user_action,
    }
    assert message.isprintable()
    assert provider_said is None or (provider_said.isprintable() and len(provider_said.encode()) <= 2048)
    if last and row.note:
        assert re.search(rf"\S[.)] {re.escape(row.note)}$", message), message
    else:
        assert "Gave up" not in message


@pytest.mark.skipif(ON_CLUSTER, reason="of so many busy shards each is looked at now and then")
def test_most_retries_come_before_anybody_looks_for_what_is_late(
    outcomes: dict[str, Outcome],
) -> None:
    first = median(
        seen.calls[0].at - moment(seen.read["times"]["created_at"]) for seen in outcomes.values() if seen.calls
    )
    late = [waited - announced * 1.1 for seen in outcomes.values() for announced, waited in seen.waits()]
    print(
        f"{len(late)} retries beyond a tenth: {median(late):.3f} s, at most {max(late):.3f}; first calls {first:.3f} s"
    )
    assert median(late) <= MOSTLY_LATE + 2 * first
