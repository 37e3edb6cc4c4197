"""Answers that have to be JSON, from the agent's format to the run's structured output."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.schemas.models import Run
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "total": {"type": "integer"}},
    "required": ["name", "total"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "name": "invoice", "schema": SCHEMA, "strict": True}
FITS = {"name": "1 + 1", "total": 1}


def asked(cluster: Cluster, model: str, **more: Any) -> Run:
    options = {"response_format": FORMAT, **more.pop("agent", {})}
    return cluster.ended(cluster.submit(model, agent=options, **more))


def test_what_fits_is_the_structured_output(cluster: Cluster) -> None:
    run = asked(cluster, "tool-2+json", tools=["calculator"])
    assert (run.status, run.structured_output, run.error) == ("completed", FITS, None)
    assert asked(cluster, "json", agent={"stream": False}).structured_output == FITS
    loose = asked(cluster, "json", agent={"response_format": {"type": "json_object"}})
    assert (loose.status, loose.structured_output) == ("completed", {})


def test_a_misfit_is_told_to_the_model_once(cluster: Cluster) -> None:
    run = asked(cluster, "tool-1+json-1", tools=["calculator"])
    assert (run.status, run.structured_output, run.error) == ("completed", FITS, None), run.error
    (told,) = [event for event in cluster.events(run.id) if event.data.get("error")]
    assert told.type == "message.created"
    assert told.data["message"]["role"] == "user"
    assert '"name" is a required property' in told.data["message"]["content"]
    error = told.data["error"]
    assert (error["class"], error["recoverable"]) == ("invalid_output", True)


def test_a_second_misfit_fails_the_run_which_keeps_the_answer(cluster: Cluster) -> None:
    run = asked(cluster, "json-2")
    assert (run.status, run.stop_reason, run.structured_output) == ("failed", "error", None)
    assert run.error is not None
    assert (run.error["class"], run.error["user_action"], run.error["recoverable"]) == (
        "invalid_output", "fix_input", False,
    )  # fmt: skip
    assert run.output == '{"misfit": true}'
    assert len(cluster.model_calls(run.id)) == 2
    assert "misfit" not in run.error["message"], "what the model wrote is content"
    again = cluster.ended(cluster.http.post(f"/v1/runs/{run.id}/retry").json()["id"])
    assert (again.status, again.structured_output) == ("completed", FITS), "the model was told what is wrong"


@pytest.mark.parametrize(
    ("model", "status", "reason"),
    [("json+filter", "incomplete", "content_filter"), ("say-9", "incomplete", "max_tokens")],
)
def test_what_was_cut_or_withheld_keeps_its_own_reason(cluster: Cluster, model: str, status: str, reason: str) -> None:
    run = asked(cluster, model, agent={"max_output_tokens": 4})
    assert (run.status, run.stop_reason, run.structured_output) == (status, reason, None)


def test_a_worker_that_dies_before_the_second_answer(cluster: Cluster) -> None:
    cluster.start("worker")
    run_id = cluster.submit("json-1+ttft-400", agent={"response_format": FORMAT})
    cluster.saw(run_id, "step.started", step="2")
    cluster.kill("worker", cluster.holder(run_id))
    run = cluster.ended(run_id)
    assert (run.status, run.structured_output) == ("completed", FITS), run.error
    assert len([event for event in cluster.events(run_id) if event.data.get("error")]) == 1


OPEN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 80},
        "total": {"type": "integer", "minimum": 1},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
    "required": ["name", "total"],
}
"""As pydantic writes one: open, with bounds, and a property that may be left out."""


@pytest.mark.parametrize("model", ["fake/json", "claude/json", "responding/json"])
def test_a_schema_is_fitted_to_its_provider(cluster: Cluster, model: str) -> None:
    wanted = {"type": "json_schema", "name": "invoice", "schema": OPEN, "strict": True}
    run = asked(cluster, model, agent={"response_format": wanted})
    assert run.status == "completed", run.error
    assert run.structured_output["total"] == 1


@pytest.mark.parametrize("provider", ["fake", "claude", "responding"])
def test_a_tool_with_a_choice_at_the_top_costs_no_request(cluster: Cluster, provider: str) -> None:
    choice = [{"required": ["route"]}, {"required": ["file"]}]
    parameters = {"type": "object", "properties": {"route": {"type": "string"}, "file": {}}, "anyOf": choice}
    tool = {"name": "impact", "parameters": parameters, "acknowledgement": "ok"}
    run = cluster.ended(cluster.submit(f"{provider}/tool-1", agent={"client_tools": [tool]}))
    assert run.status == "completed", run.error
