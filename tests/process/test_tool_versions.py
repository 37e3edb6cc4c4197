"""Two versions of a tools worker side by side, as while a deployment rolls: no call fails by lot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.process.typed import palaver

pytestmark = [pytest.mark.process, pytest.mark.long]

TOOLS = ("added", "optional", "removed", "renamed", "retyped")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver without a tools worker."""
    environment = {"PALAVER_TOOLS": "tests.process.changing_tools"}
    processes = {"flower": 0, "tools": 0}
    with Cluster(tmp_path_factory.mktemp("versions"), processes=processes, environment=environment) as cluster:
        yield cluster


@pytest.fixture
def workers(stack: Cluster) -> Iterator[ExitStack]:
    """Workers beside it."""
    with ExitStack() as opened:
        yield opened


def _call_often(stack: Cluster) -> dict[str, list[str]]:
    """Fifty calls of these tools: the arguments are as the schema asks that the model was shown. What came of those
    that failed, by tool."""
    runs = {tool: [stack.submit("tool-1", tools=[tool]) for _ in range(10)] for tool in TOOLS}
    failed: dict[str, list[str]] = {}
    for tool, run_ids in runs.items():
        for run_id in run_ids:
            assert stack.ended(run_id).status == "completed"
            (message,) = [event.data["message"] for event in stack.events(run_id) if event.type == "tool.finished"]
            if message.get("is_error"):
                failed.setdefault(tool, []).append(message["content"])
    return failed


@pytest.mark.parametrize("order", ["12", "21"], ids=["deployed", "rolled back"])
def test_no_call_fails_while_a_deployment_rolls(stack: Cluster, workers: ExitStack, order: str) -> None:
    for version in order:
        workers.enter_context(one_more(stack, "tools", name=f"of-{version}", SHOP_VERSION=version))
        assert _call_often(stack) == {}
    found = palaver("check", environment=stack.places)
    assert found.returncode == 1
    assert "several versions: added, optional, removed, renamed, retyped" in found.stdout
    assert "tool added: workers have several versions of it" in stack.new_log("worker")
