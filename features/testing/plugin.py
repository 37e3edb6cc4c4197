"""The plugin of pytest: the fixture `palaver_runs`. It imports nothing of Palaver before a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .runs import PalaverRuns


@pytest.fixture
def palaver_runs(request: pytest.FixtureRequest) -> Iterator[PalaverRuns]:
    """Runs of agents in this process, on a store and with a model of this test alone.

    A test that passes without asking for the whole script of its model is an error.
    """
    try:
        from .runs import PalaverRuns
    except ModuleNotFoundError as error:
        pytest.fail(f"palaver_runs needs the extra `testing`: pip install 'palaver[testing]' ({error})", pytrace=False)
    failed_before, runs = request.session.testsfailed, PalaverRuns()
    try:
        yield runs
    finally:
        runs.close()
    # What a test that fails did not come to says nothing.
    if request.session.testsfailed == failed_before and request.node.get_closest_marker("xfail") is None:
        runs.model.check_all_asked()
