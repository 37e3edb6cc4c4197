"""Agents as tools, with real workers: no slot is held, one run a call, whoever dies (ADR 0097)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from palaver.schemas.models import Run
from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.waiting import eventually

pytestmark = pytest.mark.process

RESEARCHER = {"model": "fake/tool-2", "tools": ["calculator"], "description": "Finds things out."}


def keep(cluster: Cluster, name: str, **agent: Any) -> None:
    answer = cluster.http.put(f"/v1/agents/{name}", json={**RESEARCHER, **agent})
    assert answer.status_code in (200, 201), answer.text


def lead(cluster: Cluster, name: str, model: str = "tool-1", **more: Any) -> str:
    return cluster.submit(f"{model}+use-agent_{name}", tools=[f"agent:{name}"], **more)


def children(cluster: Cluster, run_id: str, count: int = 1) -> Sequence[str]:
    """The runs that its calls began, once there are so many."""

    def look() -> Sequence[str]:
        found = [child.run_id for child in cluster.run(run_id).children]
        return found if len(found) == count else ()

    return eventually(look, why=f"{count} children of {run_id}")


def check_tree(cluster: Cluster, run: Run) -> None:
    """Each call of an agent began one run, and that has ended."""
    calls = [event.data for event in cluster.events(run.id) if event.type == "tool.finished"]
    assert len(run.children) == len(calls)
    for child in run.children:
        ended = cluster.ended(child.run_id)
        if child.run_id not in cluster.submitted:
            cluster.submitted.append(child.run_id)
        assert ended.status.terminal
        assert ended.status == child.status
        assert ended.parent is not None
        assert (ended.parent.run_id, ended.parent.step) == (run.id, child.step)


def test_more_parents_than_slots_all_complete(cluster: Cluster) -> None:
    """Four places for tools, and six runs whose children use tools, two of them at once."""
    keep(cluster, "researcher")
    runs = [lead(cluster, "researcher", "parallel-2") for _ in range(6)]
    for run_id in runs:
        run = cluster.ended(run_id)
        assert (run.status, len(run.children)) == ("completed", 2), run
        check_tree(cluster, run)
        used = [cluster.run(child.run_id).usage for child in run.children]
        own = list(cluster.model_calls(run_id))
        assert run.usage.model_calls == len(own) + sum(each.model_calls for each in used)
        assert run.usage.tool_calls == 2 + sum(each.tool_calls for each in used)


def test_of_a_long_answer_the_caller_sees_the_beginning_and_the_end(cluster: Cluster) -> None:
    keep(cluster, "talker", model="fake/say-1000", tools=[])
    run_id = lead(cluster, "talker", agent={"max_tool_result": 1_000})
    (child,) = children(cluster, run_id)
    said = cluster.ended(child).output or ""
    assert cluster.ended(run_id).status == "completed"
    (finished,) = (event.data for event in cluster.events(run_id) if event.type == "tool.finished")
    head, note, tail = finished["message"]["content"].split("\n")
    assert (said.startswith(head), said.endswith(tail), len(head), len(tail)) == (True, True, 500, 500)
    assert note == f"[cut: {len(said) - 1_000:,} of {len(said):,} characters are left out here]"
    check_tree(cluster, cluster.run(run_id))


def test_a_worker_waits_for_nobody(cluster: Cluster) -> None:
    keep(cluster, "slow", model="fake/say-60+rate-20", tools=[])
    run_id = lead(cluster, "slow")
    (child,) = children(cluster, run_id)
    cluster.saw(child, "message.delta")
    run = cluster.run(run_id)
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.run_id) == ("agent_run", child)
    assert [step.state for step in run.current_steps] == ["later"]
    ended = cluster.ended(run_id)
    assert ended.output is not None
    assert "w60" in ended.output
    check_tree(cluster, ended)


def test_a_cancel_ends_the_children_at_once(cluster: Cluster) -> None:
    keep(cluster, "endless", model="fake/say-400+rate-20", tools=[])
    run_id = lead(cluster, "endless", "parallel-2")
    found = children(cluster, run_id, 2)
    for child in found:
        cluster.saw(child, "message.delta")
    assert cluster.cancel(run_id) in (200, 202)
    for child in found:
        assert cluster.ended(child).status == "cancelled"
        assert cluster.outcomes(child) == ["disconnected"]
    check_tree(cluster, cluster.ended(run_id))


def test_a_failure_below_is_told_to_the_model(cluster: Cluster) -> None:
    keep(cluster, "broken", model="fake/401-9", tools=[])
    run_id = lead(cluster, "broken")
    run = cluster.ended(run_id)
    assert run.status == "completed"
    finished = cluster.saw(run_id, "tool.finished")
    assert finished.data["message"]["is_error"]
    assert "did not complete: it is failed (error): authentication" in finished.data["message"]["content"]
    check_tree(cluster, run)


def test_agents_below_agents(cluster: Cluster) -> None:
    keep(cluster, "leaf")
    keep(cluster, "middle", model="fake/tool-1+use-agent_leaf", tools=["agent:leaf"])
    run = cluster.ended(lead(cluster, "middle"))
    assert run.status == "completed"
    middle = cluster.run(run.children[0].run_id)
    leaf = cluster.run(middle.children[0].run_id)
    assert leaf.parent is not None
    assert (leaf.parent.run_id, leaf.parent.depth) == (middle.id, 2)
    assert run.usage.model_calls == 2 + 2 + leaf.usage.model_calls
    for each in (run, middle):
        check_tree(cluster, each)


@pytest.mark.parametrize(
    "point", ["step.claimed=kill@4", "step.claimed=kill@6", "step.settling=kill@5", "step.settling=kill@7",
              "step.settled=kill@5", "step.settled=kill@9", "step.settled=kill@14"],
)  # fmt: skip
def test_a_worker_that_dies_at_any_point_begins_no_second_run(cluster: Cluster, point: str) -> None:
    """Three model steps come first; the calls are left and their runs begin, and each run settles three times."""
    keep(cluster, "researcher")
    cluster.kill("worker")
    with one_more(cluster, "worker", PALAVER_FAILPOINTS=point) as doomed:
        runs = [lead(cluster, "researcher") for _ in range(3)]
        eventually(lambda: not doomed.running, why="it lives")
    cluster.start("worker")
    for run_id in runs:
        run = cluster.ended(run_id)
        assert (run.status, len(run.children)) == ("completed", 1), run
        check_tree(cluster, run)


def test_what_waits_below_is_answered_above(cluster: Cluster) -> None:
    """Each call of the child waits; the workers are killed while the first does."""
    keep(cluster, "careful", model="fake/tool-2", approvals={"require": "always"})
    run_id = lead(cluster, "careful")
    (child,) = children(cluster, run_id)
    for number in range(2):
        (action,) = eventually(lambda: cluster.run(run_id).pending_below, why=f"nothing waits below {run_id}")
        assert (action.run_id, action.path) == (child, (child,))
        if number == 0:
            cluster.kill("worker")
            cluster.start("worker")
        item = {"type": "approval", "action_id": action.id, "decision": "approve", "digest": action.digest}
        answer = cluster.http.post(f"/v1/runs/{run_id}/input", json={"items": [item]})
        assert answer.status_code == 202, answer.text
        again = cluster.http.post(f"/v1/runs/{child}/input", json={"items": [item]})
        # Behind the last of them the child may have ended by now.
        codes = ("action_already_resolved", "run_ended")[: 1 + number]
        assert (again.status_code, again.json()["code"] in codes) == (409, True), again.text
        assert action.id not in [each.id for each in cluster.run(run_id).pending_below]
    run = cluster.ended(run_id)
    assert (run.status, run.pending_below) == ("completed", ())
    shown = [event.type for event in cluster.events(run_id) if event.type.startswith("child.")]
    assert shown == ["child.action_required", "child.action_resolved"] * 2
    check_tree(cluster, run)
