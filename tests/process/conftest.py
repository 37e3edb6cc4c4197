"""A Palaver whose traces are received, for the files that look at them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.cluster import Cluster
from tests.process.otlp import Receiver


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """Whoever takes the traces."""
    with Receiver().serving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Cluster]:
    """A Palaver whose traces go to the receiver."""
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=tests",
        "PALAVER_LOG_FORMAT": "json",
    }
    with Cluster(tmp_path_factory.mktemp("traced"), environment=environment) as cluster:
        yield cluster
