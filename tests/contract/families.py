"""Runs that calls of other runs began: who waits for whom, and whose is what they used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from palaver.vocabulary.lifecycle import TRANSITIONS

if TYPE_CHECKING:
    from tests.contract.invariants import Shard

_OPEN = {status.value for status, targets in TRANSITIONS.items() if targets}


def used_by_itself(shard: Shard, run_id: str, name: str) -> int:
    """What a run used without its children: each of these has handed on what it used when it ended."""
    ended = [child for child in _children_of(shard, run_id).values() if child["status"] not in _OPEN]
    return int(shard.runs[run_id].get(name, 0)) - sum(int(child.get(name, 0)) for child in ended)


def _children_of(shard: Shard, run_id: str) -> dict[str, dict[str, str]]:
    return {
        child_id: run
        for child_id, run in shard.runs.items()
        if "parent" in run and orjson.loads(run["parent"])["run_id"] == run_id
    }


def check_families(shard: Shard) -> None:
    """A child goes on only while a call waits for it, or it is about to look; and a call never waits for nothing."""
    for run_id, run in shard.runs.items():
        if "parent" in run:
            _check_child(shard, run_id, run)
        if "children" in run:
            _check_children(shard, run_id, run)
    for run_id, steps in shard.steps.items():
        for name, step in steps.items():
            if "child" in step:
                _check_call(shard, f"{run_id}/{name}", step)


def _check_child(shard: Shard, run_id: str, run: dict[str, str]) -> None:
    parent = orjson.loads(run["parent"])
    above = shard.runs.get(parent["run_id"])
    step = shard.steps.get(parent["run_id"], {}).get(parent["step"], {})
    said = f"{run_id}, which is {run['status']}, is a child of {parent}: "
    looks = f"{run_id}/parent" in shard.due
    if above is not None:
        depth = orjson.loads(above["parent"])["depth"] if "parent" in above else 0
        assert run.get("submitted_by") == above.get("submitted_by"), said + "somebody else's"
        assert parent["depth"] == depth + 1, said + "depth"
    if run["status"] not in _OPEN:
        assert not looks, said + "it would look at its parent"
        return
    waited_for = step.get("child") == run_id and step["state"] != "aborted" and "child_ended" not in step
    assert waited_for or looks or "cancel_mode" in run, said + "nobody waits for it, and it goes on"
    if waited_for and above is not None and not looks and "paused_with" in run:
        assert above["status"] == "paused" or "pausing" in above, said + "its parent goes on, and it waits for that"


def _check_children(shard: Shard, run_id: str, run: dict[str, str]) -> None:
    listed = orjson.loads(run["children"])
    assert len({child["step"] for child in listed}) == len(listed), f"{run_id}: a call with two children: {listed}"
    for child in listed:
        of = shard.runs.get(child["run_id"])
        if of is not None:
            status = of["status"] if of["status"] not in _OPEN else None
            assert child.get("status") == status, f"{run_id}: {child} is {of['status']}"
    _check_pending(shard, run_id, listed)
    there = _children_of(shard, run_id).keys()
    assert there <= {child["run_id"] for child in listed}, f"{run_id}: children that it does not list"
    for name in ("model_calls", "tool_calls", "input_tokens", "cost"):
        assert used_by_itself(shard, run_id, name) >= 0, f"{run_id} has not what its children used: {name}"


def _check_call(shard: Shard, said: str, step: dict[str, Any]) -> None:
    child = shard.runs.get(step["child"])
    if child is None or step["state"] == "aborted":
        return
    assert ("child_ended" in step) == (child["status"] not in _OPEN), f"{said}: {step['child']} is {child['status']}"
    waits = step["state"] == "later" and step.get("postponed") == step["until"] and step["reason"] == "agent_run"
    if "child_ended" in step and waits:
        ended = float(child["ended_at"])
        assert shard.due[said] <= ended, f"{said} is due at {shard.due[said]}, and its child ended at {ended}"


def _check_pending(shard: Shard, run_id: str, listed: list[dict[str, Any]]) -> None:
    """A run says of each child how many calls wait in it and below it."""
    for child in listed:
        of = shard.runs.get(child["run_id"])
        waits = 0 if of is None else _waiting(of)
        assert of is None or child.get("pending_actions", 0) == waits, f"{run_id}: {child}, and {waits} wait there"


def _waiting(run: dict[str, str]) -> int:
    """Count the calls that wait in a run, and below it by what it says itself."""
    if run["status"] not in _OPEN:
        return 0
    rows = orjson.loads(run.get("children", "[]"))
    return len(orjson.loads(run.get("actions", "[]"))) + sum(int(child.get("pending_actions", 0)) for child in rows)
