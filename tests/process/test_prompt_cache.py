"""Prompt-cache breakpoints as a provider sees them."""

from __future__ import annotations

import pytest

from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

TOLD = {"instructions": "Be brief."}


def test_the_system_message_and_the_newest_places_have_one(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("caching/tool-4", tools=["calculator"], agent=TOLD))
    assert run.status == "completed"
    assert [list(call.breakpoints) for call in cluster.model_calls(run.id)] == [
        [0, 1], [0, 1, 3], [0, 1, 3, 5], [0, 3, 5, 7], [0, 5, 7, 9],
    ]  # fmt: skip


def test_failures_neither_lose_nor_double_one(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("caching/tool-2+503-1@2+unknowntool-1@1", tools=["calculator"], agent=TOLD))
    assert run.status == "completed"
    calls = cluster.finished_calls(run.id)
    assert [call.status for call in calls] == [200, 503, 200, 200]
    assert [list(call.breakpoints) for call in calls] == [[0, 1], [0, 1, 3], [0, 1, 3], [0, 1, 3, 5]]


def test_other_providers_get_none(cluster: Cluster) -> None:
    run = cluster.ended(cluster.submit("tool-1", tools=["calculator"], agent=TOLD))
    assert all(not call.breakpoints for call in cluster.model_calls(run.id))
