"""What clients do to a run in hand, through the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from palaver.schemas.actions import PendingAction
from palaver.schemas.models import Run
from tests.waiting import PATIENCE, eventually


class Inputs:
    """The part of `Cluster` that talks to runs that are there."""

    http: httpx.Client

    def run(self, run_id: str, wait: float = 0) -> Run:
        """The run as it is now, or after `wait` seconds if it does not end before."""
        answer = self.http.get(f"/v1/runs/{run_id}", params={"wait": wait} if wait else {})
        assert answer.status_code == 200, answer.text
        return Run.model_validate_json(answer.content)

    def reached(self, run_id: str, status: str, within: float = PATIENCE) -> Run:
        """The run once it has this status."""

        def look() -> Run | None:
            run = self.run(run_id)
            return run if run.status == status else None

        run = eventually(look, within=within, why=f"{run_id} is not {status}")
        assert run is not None
        return run

    def pending(self, run_id: str, count: int = 1) -> Sequence[PendingAction]:
        """The run's pending actions, once there are so many."""

        def look() -> Sequence[PendingAction]:
            actions = self.run(run_id).pending_actions
            return actions if len(actions) == count else ()

        return eventually(look, why=f"{count} pending actions of {run_id}")

    def cancel(self, run_id: str, *, key: str | None = None, **how: Any) -> int:
        """Ask the run to stop; the HTTP status."""
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.post(f"/v1/runs/{run_id}/cancel", json=how or None, headers=headers).status_code

    def put(self, run_id: str, *items: dict[str, Any], key: str | None = None) -> httpx.Response:
        """Send an input."""
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.post(f"/v1/runs/{run_id}/input", json={"items": items}, headers=headers)

    def take(self, run_id: str, *items: dict[str, Any]) -> Run:
        """Send an input, which must be taken; the run by that."""
        answer = self.put(run_id, *items)
        assert answer.status_code in (200, 202), answer.text
        return Run.model_validate_json(answer.content)

    def refused(self, run_id: str, *items: dict[str, Any]) -> tuple[int, str]:
        """Send an input, which must be refused; the HTTP status and the problem's code."""
        answer = self.put(run_id, *items)
        assert answer.status_code >= 400, answer.text
        return answer.status_code, answer.json()["code"]

    def approve(self, run_id: str, action_id: str = "all") -> Run:
        """Approve one pending action, or all."""
        return self.take(run_id, decision(action_id))

    def answer(self, run_id: str, call_id: str, output: Any) -> Run:
        """The output of a client's tool."""
        return self.take(run_id, tool_output(call_id, output))

    def pause(self, run_id: str, *, now: bool = False) -> Run:
        """Ask the run to pause."""
        return self.take(run_id, {"type": "pause", "now": now})

    def resume(self, run_id: str) -> Run:
        """Let the run go on."""
        return self.take(run_id, {"type": "resume"})

    def steer(self, run_id: str, words: str) -> Run:
        """Put words of the user into the run."""
        return self.take(run_id, {"type": "message", "content": words})


def soon(seconds: float) -> str:
    """A time so far ahead, as a submission has it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def decision(action_id: str, decided: str = "approve", **more: Any) -> dict[str, Any]:
    """An item: a decision on a pending action."""
    return {"type": "approval", "action_id": action_id, "decision": decided, **more}


def tool_output(call_id: str, output: Any, **more: Any) -> dict[str, Any]:
    """An item: what a client's tool answered."""
    return {"type": "tool_output", "call_id": call_id, "output": output, **more}
