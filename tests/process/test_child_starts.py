"""A tools worker whose children cannot begin, for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.cluster import Cluster
from tests.process.one_more import one_more
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]


def test_a_child_that_cannot_begin_is_given_no_calls(cluster: Cluster, tmp_path: Path) -> None:
    """Its worker begins another until one can: here, once a device is there again."""
    away = tmp_path / "away"
    (tmp_path / "device_tools.py").write_text(
        "from pathlib import Path\n\nfrom billiard.process import current_process\n\nfrom palaver import tool\n\n"
        f"if current_process().name != 'MainProcess' and Path({str(away)!r}).exists():\n"
        "    raise RuntimeError('the device is away')\n\n\n"
        '@tool(queue="devices")\ndef on_device() -> str:\n    """Ask it."""\n    return "here"\n'
    )
    options = ("-Q", "devices", "-c", "1")
    with one_more(cluster, "tools", options=options, PALAVER_TOOLS="device_tools", PYTHONPATH=str(tmp_path)) as worker:
        eventually(lambda: "on_device" in cluster.http.get("/v1/tools").text)
        away.touch()
        run_id = cluster.submit("tool-1", tools=["on_device"])
        eventually(lambda: worker.output.count("cannot begin; the next try is in 1.0 s: ") >= 2)
        assert "the device is away" in worker.output
        away.unlink()
        assert cluster.ended(run_id).status == "completed"
    assert [event.data["message"]["content"] for event in cluster.events(run_id) if event.type == "tool.finished"] == [
        "here"
    ]
