"""Clients of each generation, one process for all tests of a generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache

import pytest

from tests.openhands.client import OpenHandsClient
from tests.openhands.install import GENERATIONS, REQUIRED, interpreter


@pytest.fixture(scope="session")
def _clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], OpenHandsClient]]:
    """The client of each generation, from its first use on: it imports for seven seconds."""
    with ExitStack() as stack:

        @cache
        def client_of(generation: str) -> OpenHandsClient:
            _require(generation)
            log = tmp_path_factory.mktemp("openhands") / "stderr.log"
            return stack.enter_context(OpenHandsClient(generation, log))

        yield client_of


@pytest.fixture
def both_generations(_clients: Callable[[str], OpenHandsClient]) -> Mapping[str, OpenHandsClient]:
    """The clients of all generations."""
    return {generation: _clients(generation) for generation in GENERATIONS}


@pytest.fixture(params=GENERATIONS)
def openhands(request: pytest.FixtureRequest, _clients: Callable[[str], OpenHandsClient]) -> OpenHandsClient:
    """The client of a generation."""
    return _clients(request.param)


def _require(generation: str) -> None:
    if interpreter(generation) is None:
        why = (
            f"OPENHANDS' CLIENT {generation} IS NOT TESTED: make openhands-clients installs it, on Python 3.12 or 3.13"
        )
        assert not REQUIRED, why
        pytest.skip(why)
