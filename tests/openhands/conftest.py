"""Clients of each generation, one process for all tests of a generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.openhands.client import OpenHandsClient
from tests.openhands.install import GENERATIONS, REQUIRED, interpreter


@pytest.fixture(scope="session")
def both_generations() -> Mapping[str, Path]:
    """The interpreters of all generations of the client."""
    return {generation: _interpreter(generation) for generation in GENERATIONS}


@pytest.fixture(scope="session", params=GENERATIONS)
def openhands(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenHandsClient]:
    """The client of a generation."""
    generation: str = request.param
    _interpreter(generation)
    with OpenHandsClient(generation, tmp_path_factory.mktemp("openhands") / "stderr.log") as client:
        yield client


def _interpreter(generation: str) -> Path:
    python = interpreter(generation)
    if python is None:
        why = (
            f"OPENHANDS' CLIENT {generation} IS NOT TESTED: make openhands-clients installs it, on Python 3.12 or 3.13"
        )
        assert not REQUIRED, why
        pytest.skip(why)
    return python
