"""Tests of agents and tools in the process of pytest: the engine as it is, a store in memory, a model with a script.

    def test_a_refund_is_made_once(palaver_runs):
        palaver_runs.model.calls("refund", order=4711).says("Done.")
        run = palaver_runs.run("refund 4711", tools=[refund])
        assert run.status == "completed" and run.output == "Done."
        assert run.calls("refund") == [{"order": 4711}]

The fixture is there wherever Palaver is installed. `PalaverRuns` of ``runs.py`` is the same without pytest. Each pytest
of an environment imports this package: it imports nothing before it is asked.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "plugin":
        return import_module(f"{__name__}.plugin")
    if name == "FEATURE":
        from palaver.feature import Feature

        return Feature(__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
