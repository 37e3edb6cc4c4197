"""What is left of a run that was cancelled, as clients see it, and what a worker does with its late deliveries."""

from __future__ import annotations

from palaver.schemas.models import Run
from palaver.steps.leases import Delivery
from tests.process.cluster import Cluster
from tests.waiting import eventually

DENIED = "The user cancelled the request, so the tool call was denied."


def cancelled(cluster: Cluster, run_id: str) -> Run:
    """The run once it has ended, which it must as cancelled."""
    run = cluster.ended(run_id)
    assert (run.status, run.stop_reason, run.error) == ("cancelled", "cancelled", None), run
    assert run.cancel is not None
    assert run.cancel.stopped_ms is not None
    return run


def said(cluster: Cluster, run: Run) -> list[tuple[str, str]]:
    """Roles and texts of the conversation's messages."""
    page = cluster.http.get(f"/v1/conversations/{run.conversation_id}/messages").json()["data"]
    return [(each["role"], each["content"]) for each in page]


def outcome(cluster: Cluster, run: Run) -> str:
    """How the conversation's last run ended."""
    return str(cluster.http.get(f"/v1/conversations/{run.conversation_id}").json()["last_outcome"]["status"])


def errors(cluster: Cluster, run_id: str) -> dict[str, str]:
    """The error class of each call's result, empty for none, by call id."""
    finished = [event.data for event in cluster.events(run_id) if event.type == "tool.finished"]
    return {data["message"]["call_id"]: (data.get("error") or {}).get("class", "") for data in finished}


def strays(cluster: Cluster, run_id: str) -> int:
    """How many deliveries a model worker got that it had nothing to do for, as the run was cancelled."""
    lines = cluster.new_log("worker").splitlines()
    return sum(f"[{run_id}:" in line and "stray: cancelled" in line for line in lines)


def deliver(cluster: Cluster, run: Run) -> None:
    """Ask a worker for the run's first step once more, and wait until it got that."""
    before = strays(cluster, run.id)
    cluster.broker.deliver(Delivery("model", run.id, run.conversation_id, "1", 2))
    eventually(lambda: strays(cluster, run.id) > before)


def prompt(cluster: Cluster, run: Run) -> int:
    """Messages of the only call of the run."""
    (call,) = cluster.model_calls(run.id)
    return call.messages


def replaced(cluster: Cluster, pid: int) -> bool:
    """Whether the child of the tools worker has ended, its worker has said so, and another one has come."""
    children = cluster.children_of("tools")
    return bool(children) and pid not in children and "WorkerLostError" in cluster.new_log("tools")
