"""A Palaver whose traces are received, receivers of webhooks, and a browser, for the files that want them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import browser
from tests.process.cluster import Cluster
from tests.process.otlp import Receiver
from tests.process.webhook_receivers import Receivers, receivers


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


@pytest.fixture(scope="module")
def heard() -> Iterator[Receivers]:
    """Receivers of webhooks."""
    with receivers() as made:
        yield made


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A browser: the address at which it is driven."""
    with browser(tmp_path_factory.mktemp("chromium")) as address:
        yield address
