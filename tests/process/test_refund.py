"""The refund: nobody waives the operator's rule, a second person approves, and it is done once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

ANN, BOB = "ann-0123456789abcdef", "bob-0123456789abcdef"
POLICY = """
[rules.refunds]
approvals = { require = ["refund*"], approver = "other" }
"""
WORDS = '[[args {"amount": 99999}]]'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("refund")
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    environment = {"PALAVER_API_KEYS": f"ann={ANN},bob={BOB}", "PALAVER_POLICY": str(policy)}
    cluster = Cluster(folder, environment=environment)
    cluster.http.headers["Authorization"] = f"Bearer {ANN}"
    with cluster:
        yield cluster


def decide(cluster: Cluster, run_id: str, key: str, **item: Any) -> httpx.Response:
    """What the API answers to a decision on all that waits."""
    items = [{"type": "approval", "action_id": "all", "decision": "approve", **item}]
    headers = {"Authorization": f"Bearer {key}"}
    return cluster.http.post(f"/v1/runs/{run_id}/input", json={"items": items}, headers=headers)


def paid(cluster: Cluster, name: str) -> list[int]:
    return [each["amount"] for each in cluster.tool_ledger() if each["event"] == "begin" and each["tool"] == name]


@pytest.mark.parametrize("tool", ["refund", "refund_inline"])
def test_a_refund_is_refused_then_approved_by_a_second_key_and_done_once(cluster: Cluster, tool: str) -> None:
    model, before = f"tool-1+use-{tool}", len(paid(cluster, tool))
    for waiver in ({"require": "never"}, {"exempt": [tool]}):
        body = cluster.body(model, WORDS, tools=[tool], agent={"approvals": waiver})
        refused = cluster.http.post("/v1/runs", json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "policy_violation")
        assert "waives an approval that the rule refunds demands" in refused.json()["detail"]

    run_id = cluster.submit(model, WORDS, tools=[tool])
    (action,) = cluster.pending(run_id)
    assert (action.tool, action.arguments, action.second_person) == (tool, '{"amount": 99999}', True)
    assert len(paid(cluster, tool)) == before

    own = decide(cluster, run_id, ANN)
    assert (own.status_code, own.json()["code"]) == (403, "second_person_required")
    assert "the approval of a second person" in own.json()["detail"]
    edited = decide(cluster, run_id, BOB, action_id=action.id, decision="edit", arguments={"amount": 1})
    assert (edited.status_code, edited.json()["code"]) == (403, "not_to_be_edited")
    assert len(paid(cluster, tool)) == before

    second = decide(cluster, run_id, BOB, action_id=action.id, digest=action.digest)
    assert second.status_code == 202, second.text
    run = cluster.ended(run_id)
    assert (run.status, run.submitted_by) == ("completed", "ann")
    assert run.output == "done: 1 tool results, the last one: paid 99999"
    assert paid(cluster, tool)[before:] == [99_999]
    again = decide(cluster, run_id, BOB)
    assert (again.status_code, again.json()["code"]) == (409, "run_ended")
    resolved = [event.data for event in cluster.events(run_id) if event.type == "action.resolved"]
    assert [(data["decision"], data["by"]) for data in resolved] == [("approve", "bob")]


def test_an_agent_on_the_server_waits_for_the_second_person_too(cluster: Cluster) -> None:
    spec = {"model": "fake/tool-1+use-refund", "tools": ["refund"]}
    waives = {**spec, "approvals": {"require": "never"}}
    refused = cluster.http.put("/v1/agents/cashier", json=waives)
    assert (refused.status_code, refused.json()["code"]) == (403, "policy_violation")
    assert cluster.http.put("/v1/agents/cashier", json=spec).status_code in (200, 201)
    run_id = cluster.post({"agent": "cashier", "input": WORDS})
    (action,) = cluster.pending(run_id)
    assert action.second_person
    before = len(paid(cluster, "refund"))
    assert decide(cluster, run_id, ANN).status_code == 403
    assert decide(cluster, run_id, ANN, decision="deny").status_code == 202
    run = cluster.ended(run_id)
    assert (run.agent.name, run.agent.version) == ("cashier", 1)
    assert len(paid(cluster, "refund")) == before
