"""The way of a tool's error, from where it is raised to where its verdict is settled: few files, and none twice."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final

import httpx
import pytest

from docs.one_step import ROOT
from palaver.config.settings import Settings
from palaver.steps.retry import RetryPolicy
from palaver.store import Store
from palaver.tools import tool
from tests.contract.clock import TurnedDatabase
from tests.contract.tool_worker import tool_worker

WALK: Final[Mapping[str, tuple[str, ...]]] = {
    "workers/sources/containment.py": ("failed",),
    "palaver/errors/tool_findings.py": ("find_failure", "_found"),
    "palaver/errors/classification.py": ("telling", "precise_classification"),
    "palaver/errors/services.py": ("is_unsent",),
    "palaver/errors/foreign.py": (),
    "workers/steps/step.py": ("_verdict",),
    "workers/steps/failures.py": ("verdict_on", "_on_tool"),
    "palaver/steps/tool_retry.py": ("policy_for", "ToolPolicy.decide", "ToolPolicy.reason"),
    "palaver/steps/retry.py": ("RetryPolicy.decide", "Rule.backoff"),
    "workers/steps/service_permit.py": ("ServicePermit.report",),
    "workers/models/provider_limiter.py": ("ProviderLimiter.report_failure",),
    "workers/steps/outages.py": ("settle",),
}
"""The functions that judge the error and decide on it, by file, in order. Of a file without any, tables are read."""
MOST_STAYS: Final = 12
LEFT_OUT: Final[Mapping[str, str]] = {
    "palaver/errors/tool_findings.py:_failure": "Writes the failure down",
    "palaver/errors/failure.py": "Makes the words of a failure safe to show",
    "palaver/errors/foreign.py": "What is known of the exceptions of libraries",
    "palaver/errors/services.py": "What is known of those with which tools call services",
    "palaver/errors/classification.py": "Follows the causes of an exception",
    "palaver/steps/retry.py:RetryPolicy.parse": "Reads the policy that a tool declares",
    "workers/sources/containment.py": "Where the tool runs: it passes the exception on",
    "workers/sources/toolbox.py": "Passes the exception on",
    "workers/steps/tool_calls.py": "Passes the exception on",
    "workers/steps/step_functions.py:call_tool": "Passes the exception on",
    "workers/steps/service_permit.py:ServicePermit.__aexit__": "Leaves a failed call to its report",
    "workers/steps/step.py:_work": "Passes the exception on",
    "workers/steps/step.py:make_attempt": "Takes the verdict, whatever it is",
    "workers/steps/failures.py:log_raised": "Logs where the tool raised",
    "workers/models/provider_limiter.py": "The gate of the service: what one worker hears all are told",
    "workers/steps/answer_stream.py": "Closes the stream to watchers, as of any step",
    "workers/steps/attempt.py": "What the attempt used, as of any step",
    "workers/steps/in_place.py": "Offers the place of the worker to the next step, as of any step",
    "workers/steps/model_calls.py": "What the attempt used, as of any step",
    "workers/steps/attempt_notes.py": "The note for the trace, as of any step",
}
SHORT: Final = 10
"""Lines of a function that may be left out without a word."""

Passed = dict[tuple[str, str], int]
"""File and name of each function that is called, or that calls another one, and its lines, in the order of the first
time."""


def record(passed: Passed) -> None:
    """Record from here until the verdict is settled."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_back is None:
            return
        for code in (frame.f_back.f_code, frame.f_code):
            file, name = code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname
            if file.startswith(("workers/", "palaver/errors/", "palaver/steps/")) and "<" not in name:
                lines = max(line for *_, line in code.co_lines() if line) - code.co_firstlineno + 1
                passed.setdefault((file, name), lines)
            if (file, name) == ("workers/steps/outages.py", "settle"):
                sys.setprofile(None)

    sys.setprofile(note)


async def test_an_error_goes_through_few_files_and_returns_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, redis, passed = Settings(redis_url="redis://127.0.0.1:1/0"), TurnedDatabase().client(), Passed()

    @tool(retry=RetryPolicy(), limit_key="crm")
    async def crm() -> str:
        """Asks a service that is not there."""
        record(passed)
        raise httpx.ConnectError("refused") from ConnectionRefusedError(111, "refused")

    try:
        async with tool_worker(Store(redis, settings), redis, settings, monkeypatch, crm) as tools:
            _, (call,) = await tools.ask(crm)
            assert (await tools.attempt(call)).startswith("RETRY connection: connect_refused")
    finally:
        sys.setprofile(None)
    wanted = [(file, name) for file, names in WALK.items() for name in names]
    assert [each for each in passed if each in wanted] == wanted
    assert len(WALK) <= MOST_STAYS
    aside = [
        f"{file}:{name}"
        for (file, name), lines in passed.items()
        if lines > SHORT and (file, name) not in wanted and not is_left_out(f"{file}:{name}")
    ]
    assert aside == [], "it is a part of the walk, or LEFT_OUT says what it is for"
    idle = [each for each in LEFT_OUT if not any(is_part(f"{file}:{name}", each) for file, name in passed)]
    assert idle == [], "no error passes it"


def is_left_out(what: str) -> bool:
    return any(is_part(what, each) for each in LEFT_OUT)


def is_part(what: str, entry: str) -> bool:
    return what == entry or (":" not in entry and what.startswith(entry))
