"""What a transcript says about waits, retries, limits and ends, and the options that ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.errors import ErrorClass, Failure
from tests.command_line import EVENTS, RUN, RUNS, CommandResult
from tests.scripted_api import (
    AT,
    CONVERSATION_ID,
    RUN_ID,
    ScriptedAPI,
    action_object,
    answer,
    error_object,
    frame,
    newer_frame,
    run_object,
    stream,
)

FINISHED = frame(99, "run.finished")
ONE_SECOND_LATER = datetime.fromisoformat(AT).astimezone() + timedelta(seconds=1)


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("POST", RUNS, answer(run_object("queued"), 202))
        server.on("GET", RUN, answer(run_object("completed", stop_reason="end_turn")))
        yield server


def told(api: ScriptedAPI, *events: bytes) -> list[str]:
    """The transcript between its first line and its last."""
    api.on("GET", EVENTS, stream(*events, FINISHED))
    return CommandResult(api, "run", "hi", "-m", "fake/echo").out.splitlines()[1:-1]


def waiting(seq: int, code: str, delay: float = 3, step: str = "1") -> bytes:
    return frame(seq, "run.waiting", step=step, reason="provider_cooldown", code=code, delay=delay)


def retrying(seq: int, **more: Any) -> bytes:
    error = error_object("rate_limited", message="Slow.")
    return frame(seq, "run.retrying", attempt=seq, **{"delay": 1.5, "error": error, **more})


class TestWaiting:
    def test_says_why_and_until_when_by_the_clock_on_the_wall(self, api: ScriptedAPI) -> None:
        at = ONE_SECOND_LATER + timedelta(seconds=2)
        assert told(api, waiting(1, "cooldown")) == [
            f"step 1 waits until {at:%H:%M:%S}: the provider asked for fewer requests and is left alone"
        ]

    def test_says_it_once_however_often_it_is_repeated(self, api: ScriptedAPI) -> None:
        repeated = [frame(1, "step.started", step="1"), waiting(2, "cooldown"), frame(3, "step.started", step="1")]
        lines = told(
            api, *repeated, waiting(4, "cooldown", 1), waiting(5, "requests_per_minute"), waiting(6, "cooldown")
        )
        assert [line.partition(": ")[2] for line in lines] == [
            "the provider asked for fewer requests and is left alone",
            "the provider's requests of this minute are used up",
            "the provider asked for fewer requests and is left alone",
        ]
        assert len(told(api, waiting(1, "cooldown"), retrying(2), waiting(3, "cooldown"))) == 3
        assert len(told(api, waiting(1, "cooldown"), waiting(2, "cooldown", step="2"))) == 2

    def test_a_place_comes_free_when_it_does(self, api: ScriptedAPI) -> None:
        assert told(api, waiting(1, "max_in_flight", 5)) == [
            "step 1 waits: as many calls as the provider may have are under way"
        ]

    def test_a_worker_comes_when_somebody_starts_it(self, api: ScriptedAPI) -> None:
        lacking = frame(1, "run.waiting", step="1", reason="no_worker", code="provider:mine", delay=0.1)
        assert told(api, lacking) == ["step 1 waits: no worker has provider mine"]

    def test_a_cap_of_the_tenant_is_no_limit_of_the_provider(self, api: ScriptedAPI) -> None:
        def capped(code: str) -> list[str]:
            return told(api, frame(1, "run.waiting", reason="tenant_limit", code=code, delay=3))

        at = ONE_SECOND_LATER + timedelta(seconds=2)
        for code, words in (
            ("usd_per_day", "the tenant's money of this day is spent, or set aside for calls under way"),
            ("requests_per_minute", "the tenant's requests of this minute are used up"),
            ("moon_phase", "tenant_limit moon_phase"),
        ):
            assert capped(code) == [f"step 1 waits until {at:%H:%M:%S}: {words}"]

    def test_what_this_version_does_not_know(self, api: ScriptedAPI) -> None:
        odd = frame(1, "run.waiting", code="moon_phase")
        assert told(api, odd) == [f"step 1 waits until {ONE_SECOND_LATER:%H:%M:%S}: provider_cooldown moon_phase"]
        assert told(api, newer_frame(1, "run.waiting", reason="moon_phase")) == []


def test_a_tool_that_failed_is_named_once(api: ScriptedAPI) -> None:
    message = {
        "role": "tool",
        "call_id": "c",
        "name": "add",
        "content": "add failed: RuntimeError: no",
        "is_error": True,
    }
    assert told(api, frame(1, "tool.finished", step="1/c", message=message)) == ["← add failed: RuntimeError: no"]


def test_what_ends_the_run_is_told_to_no_model(api: ScriptedAPI) -> None:
    misfit = frame(1, "message.created", message={"role": "user", "content": "No JSON."}, nudge=True)
    assert told(api, misfit, frame(2, "step.started", step="2")) == ["(the model was told: No JSON.)"]
    assert told(api, misfit) == []


class TestRetrying:
    def test_again_or_with_another_model(self, api: ScriptedAPI) -> None:
        provider = {"name": "fake", "model": "m", "http_status": 429, "request_id": None, "message": "Slow down."}
        quoted = told(api, retrying(1, error=error_object("rate_limited", provider=provider)))
        assert quoted[1:] == ["the provider said: Slow down."]
        assert told(api, retrying(1), retrying(2, fallback=True), retrying(3, delay=120)) == [
            "step 1, attempt 1 failed, again in 1.5 s: rate_limited: Slow.",
            "step 1, attempt 2 failed, the next model takes over: rate_limited: Slow.",
            "step 1, attempt 3 failed, again in 2m 00s: rate_limited: Slow.",
        ]


class TestLimits:
    @pytest.mark.parametrize(
        ("used", "limit", "shown"),
        [(81, 100, "81 of 100"), (0.1 + 0.2, 0.5, "0.3 of 0.5"), (None, 0.5, "an unknown amount of 0.5")],
    )
    def test_a_warning(self, api: ScriptedAPI, used: float | None, limit: float, shown: str) -> None:
        lines = told(api, frame(1, "budget.warning", what="tokens", used=used, limit=limit))
        assert lines == [f"limit tokens: {shown} used"]


class TestActions:
    def test_who_waits_for_somebody_says_for_what(self, api: ScriptedAPI) -> None:
        action = action_object(tool="send_mail")
        lines = told(
            api,
            frame(1, "action.required", step="1/c", action=action),
            frame(2, "action.resolved", action_id="act_1", decision="deny", reason="not bob"),
            frame(3, "action.required", step="1/d", action={**action, "type": "client_tool"}),
            frame(4, "run.paused"),
            frame(5, "run.resumed"),
            frame(6, "action.resolved", action_id="act_1", decision="output", reason=None),
        )
        assert lines == [
            'send_mail {"to": "bob"} waits for an approval (action act_1)',
            "decided: deny (not bob)",
            'send_mail {"to": "bob"} waits for an output of the client (action act_1)',
            "paused",
            "resumed",
            "decided: output",
        ]


class TestSteering:
    def test_what_the_user_says_into_a_run_is_shown_and_what_began_it_is_not(self, api: ScriptedAPI) -> None:
        first = frame(1, "message.created", message={"role": "user", "content": "hi"})
        later = frame(3, "message.created", message={"role": "user", "content": "Faster."})
        assert told(api, first, frame(2, "run.started"), later) == ["> Faster."]


def ended(api: ScriptedAPI, status: str, stop_reason: str, **more: Any) -> list[str]:
    """The last lines of the transcript, without the very last one."""
    api.on("GET", RUN, answer(run_object(status, stop_reason=stop_reason, **more)))
    return told(api)


class TestEnds:
    @pytest.mark.parametrize("error_class", list(ErrorClass))
    def test_every_failure_says_why_and_what_to_do(self, api: ScriptedAPI, error_class: ErrorClass) -> None:
        error = Failure.of(error_class).to_error(step="1", attempt=1)
        why, *what_to_do = ended(api, "failed", "error", error=error)
        assert why == f"{error_class}: {error['message']}"
        if error["user_action"] == "none" and error_class is not ErrorClass.INTERNAL:
            assert what_to_do == []
        else:
            assert what_to_do[0].startswith("what to do: ")
            assert what_to_do[0].endswith(f" ({error['user_action']})")

    @pytest.mark.parametrize(
        ("status", "stop_reason", "why", "what_to_do"),
        [
            ("incomplete", "budget", "The run's budget is used up.", "--budget (settings)"),
            ("incomplete", "max_steps", "The run used all its steps.", "--max-steps (settings)"),
            ("incomplete", "max_tokens", "The answer was cut", "max_output_tokens of the agent (settings)"),
            ("incomplete", "content_filter", "content policy withheld", "or choose another model (fix_input)"),
            ("expired", "deadline", "The run is past its deadline.", f"go on with `palaver retry {RUN_ID}` (retry)"),
        ],
    )
    def test_a_limit_says_which_and_what_to_do(
        self, api: ScriptedAPI, status: str, stop_reason: str, why: str, what_to_do: str
    ) -> None:
        first, second = ended(api, status, stop_reason)
        assert why in first
        assert second.startswith("what to do: ")
        assert second.endswith(what_to_do)
        assert CONVERSATION_ID in second or "-c" not in second
        shown = CommandResult(api, "show", RUN_ID).out
        assert f"\nwhy           {first}\n" in shown
        assert f"\n{second.replace('what to do: ', 'what to do    ')}\n" in shown

    @pytest.mark.parametrize(("status", "stop_reason"), [("completed", "end_turn"), ("cancelled", "cancelled")])
    def test_what_was_wanted_is_not_commented(self, api: ScriptedAPI, status: str, stop_reason: str) -> None:
        assert ended(api, status, stop_reason) == []

    def test_the_last_line_has_the_cost_if_there_is_one(self, api: ScriptedAPI) -> None:
        used = {"input_tokens": 10, "output_tokens": 5, "model_calls": 1, "tool_calls": 0}
        api.on("GET", EVENTS, stream(FINISHED))
        for cost, shown in (
            (0.012345, "0 tool calls, $0.01235 ·"),
            (1.8e-05, "0 tool calls, $0.000018 ·"),
            (12.3456, "0 tool calls, $12.35 ·"),
            (0.0, "0 tool calls ·"),
            (None, "0 tool calls ·"),
        ):
            api.on("GET", RUN, answer(run_object("completed", usage={**used, "cost_usd": cost})))
            assert shown in CommandResult(api, "watch", RUN_ID).out


class TestProgress:
    def test_of_a_tool_is_a_line_each(self, api: ScriptedAPI) -> None:
        reports = (("1 of 3\x1b[2J\nfiles", 1 / 3), ("nearly", None))
        shown = [frame(n, "tool.progress", text=text, fraction=part) for n, (text, part) in enumerate(reports, 1)]
        assert told(api, *shown) == [r"… calculator: 1 of 3\x1b[2J files (33%)", "… calculator: nearly"]


class TestOptions:
    def test_what_a_run_is_found_by_and_when_it_may_run(self, api: ScriptedAPI) -> None:
        before = datetime.now(UTC)
        CommandResult(
            api, "run", "hi", "-m", "a/b", "--metadata", "customer=42", "--metadata", "note=a=b",
            "--start-after", "10m",
            "--start-by", "2026-01-31T12:00:00Z", "--deadline", "3d", "--idempotency-key", "mine", "--detach",
        )  # fmt: skip
        sent = api.seen[-1]
        assert sent.headers["idempotency-key"] == "mine"
        assert sent.body["metadata"] == {"customer": "42", "note": "a=b"}
        begins, ends = (datetime.fromisoformat(sent.body[name]) for name in ("start_after", "deadline"))
        assert begins - before >= timedelta(minutes=10)
        assert ends - before >= timedelta(days=3)
        assert datetime.fromisoformat(sent.body["start_by"]) == datetime(2026, 1, 31, 12, tzinfo=UTC)

    @pytest.mark.parametrize("option", [("--metadata", "customer"), ("--metadata", "=42"), ("--deadline", "soon")])
    def test_what_does_not_fit_is_not_sent(self, api: ScriptedAPI, option: tuple[str, str]) -> None:
        said = CommandResult(api, "run", "hi", "-m", "a/b", *option)
        assert (said.code, api.seen) == (2, [])

    def test_an_agent_and_a_budget(self, api: ScriptedAPI, tmp_path: Path) -> None:
        spec = tmp_path / "agent.json"
        spec.write_text('{"model": "a/b", "condense": false}')
        for agent in (spec.read_text(), f"@{spec}"):
            CommandResult(api, "run", "hi", "-a", agent, "-b", "tokens=500", "--budget", "cost_usd=0.25", "--detach")
            assert api.seen[-1].body == {
                "agent": {"model": "a/b", "condense": False},
                "input": "hi",
                "budget": {"tokens": 500, "cost_usd": 0.25},
            }

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            ([], "who answers? Give --model"),
            (["--agent", "[]"], "an agent is a JSON object"),
            (["--agent", '{"model":'], "Expecting value"),
            (["--agent", "@/not/there"], "No such file"),
            (["--agent", "{}", "--model", "a/b"], "give either agent or model"),
            (["--model", "a/b", "--budget", "tokens"], "is not NAME=NUMBER"),
            (["--model", "a/b", "--budget", "tokens=many"], "is not NAME=NUMBER"),
        ],
    )
    def test_what_cannot_be_is_said_before_anything_is_sent(
        self, api: ScriptedAPI, arguments: list[str], complaint: str
    ) -> None:
        said = CommandResult(api, "run", "hi", *arguments)
        assert (said.code, said.out) == (2, "")
        assert complaint in " ".join(said.err.split())
        assert not api.seen
