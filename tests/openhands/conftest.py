"""Clients of each generation, one process for all tests of a generation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.openhands.client import OpenHandsClient
from tests.openhands.install import GENERATIONS, REQUIRED, interpreter


@pytest.fixture(scope="session", params=GENERATIONS)
def openhands(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenHandsClient]:
    """The client of a generation."""
    generation: str = request.param
    if interpreter(generation) is None:
        why = (
            f"OPENHANDS' CLIENT {generation} IS NOT TESTED: make openhands-clients installs it, on Python 3.12 or 3.13"
        )
        assert not REQUIRED, why
        pytest.skip(why)
    with OpenHandsClient(generation, tmp_path_factory.mktemp("openhands") / "stderr.log") as client:
        yield client
