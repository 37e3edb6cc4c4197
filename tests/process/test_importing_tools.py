"""Modules of tools are imported where their tools run, as a program would import them (ADR 0030)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.process.cluster import Cluster
from tests.process.one_more import one_more

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver without a tools worker. Its model worker could not import one of the modules of tools."""
    environment = {
        "PALAVER_TOOLS": "tests.process.importing_tools,tests.process.gpu_tools",
        "PALAVER_INLINE_TOOLS": "tests.process.importing_tools",
    }
    cluster = Cluster(tmp_path_factory.mktemp("apart"), processes={"tools": 0}, environment=environment)
    with cluster:
        yield cluster


def _results(cluster: Cluster, run_id: str) -> list[str]:
    assert cluster.ended(run_id).status == "completed"
    finished = [event.data for event in cluster.events(run_id) if event.type == "tool.finished"]
    assert not any(data.get("error") for data in finished), finished
    return [data["message"]["content"] for data in finished]


@pytest.mark.parametrize("pool", ["processes", "loop"])
def test_a_tools_worker_imports_as_a_program_does_and_a_model_worker_needs_none_of_it(
    apart: Cluster, pool: str
) -> None:
    early = apart.submit("tool-1", '[[args {"text": "abc"}]]', tools=["embed"])
    if pool == "processes":
        # Nobody has ever told of tools that are steps: the run is taken on, and waits for who has its tool.
        apart.saw(early, "run.waiting", reason="no_worker", code="tool:embed", step="1")
    with one_more(apart, "tools", name=pool, PALAVER_TOOL_POOL=pool, SHOP_GPU="1") as worker:
        assert _results(apart, early) == ["[3]"]
        greeting = apart.submit("tool-1", '[[args {"name": "Ann"}]]', tools=["greet"])
        assert _results(apart, greeting) == ["hello Ann"]
        orders = json.dumps({"orders": [{"amount": 2}, {"amount": 3}]})
        assert _results(apart, apart.submit("tool-1", f"[[args {orders}]]", tools=["count"])) == ["5"]
        # A handler that was made when the module was imported writes to where output goes now.
        assert "greeting Ann" in worker.output


def test_an_inline_tool_runs_within_the_model_step_where_its_module_is(apart: Cluster) -> None:
    run_id = apart.submit("tool-1", '[[args {"name": "Ann"}]]', tools=["greet_inline"])
    assert _results(apart, run_id) == ["hello Ann"]
    assert {event.data["step"] for event in apart.events(run_id) if event.type == "step.started"} == {"1", "2"}


def test_what_does_not_fit_a_nested_schema_is_told_to_the_model(apart: Cluster) -> None:
    with one_more(apart, "tools", SHOP_GPU="1"):
        orders = json.dumps({"orders": [{"amount": "two"}]})
        run_id = apart.submit("tool-1", f"[[args {orders}]]", tools=["count"])
        assert apart.ended(run_id).status == "completed"
    (finished,) = (event.data for event in apart.events(run_id) if event.type == "tool.finished")
    assert finished["error"]["class"] == "invalid_tool_call"
    assert 'orders.0.amount: is not of type "integer"' in finished["message"]["content"]
