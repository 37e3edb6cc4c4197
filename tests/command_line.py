"""The command line in this process, and a run that shows everything it can say."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from typer import testing
from typer.testing import CliRunner

from palaver.cli.app import app
from tests.scripted_api import CONVERSATION_ID, RUN_ID, ScriptedAPI, error_object, frame, newer_frame

# The tree of commands is that of the program, which makes it once. CliRunner would make it for each command line.
testing._get_command = cache(testing._get_command)  # type: ignore[attr-defined]

RUNS = "/v1/runs"
RUN = f"/v1/runs/{RUN_ID}"
EVENTS = f"{RUN}/events"
CALL = {"id": "c1", "name": "calculator", "arguments": '{"expression": "2+2"}'}
RESULT = {"role": "tool", "call_id": "c1", "name": "calculator", "content": "4", "is_error": False}
SLOW = error_object("rate_limited", message="Slow.")
FINISHED: dict[str, Any] = {"status": "completed", "stop_reason": "end_turn", "error": None}
TURN = (
    frame(1, "run.created", conversation_id=CONVERSATION_ID),
    frame(2, "run.queued", behind="run_00other"),
    frame(3, "message.created", message={"role": "user", "content": "What is 2+2?"}),
    frame(4, "run.started"),
    frame(5, "step.started", step="1", attempt=1, worker="w1"),
    frame(6, "run.retrying", step="1", attempt=1, delay=1.5, error=SLOW),
    frame(7, "step.started", step="1", attempt=2, worker="w1"),
    frame(8, "message.delta", step="1", attempt=2, text="I will "),
    frame(9, "message.discarded", step="1", attempt=2),
    frame(10, "step.lost", step="1", attempt=2, worker="w1"),
    frame(11, "message.delta", step="1", attempt=3, text="Let me \x1b[2Jsee."),
    frame(12, "message.created", message={"role": "assistant", "content": "Let me \x1b[2Jsee.", "tool_calls": [CALL]}),
    frame(13, "step.started", step="1/c1", attempt=1, worker="w2"),
    frame(14, "tool.finished", step="1/c1", message=RESULT),
    newer_frame(15, "brand.new", anything=[1]),
    frame(16, "message.created", message={"role": "assistant", "content": "four"}),
    frame(17, "run.finished", **FINISHED),
)  # fmt: skip


class CommandResult:
    """How a command ended and what it wrote."""

    def __init__(self, api: ScriptedAPI | str, *arguments: str, input: str | bytes | None = None) -> None:
        url = api if isinstance(api, str) else api.url
        result = CliRunner().invoke(app, [*arguments, "--url", url], input=input)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]
