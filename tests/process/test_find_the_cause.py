"""docs/how-to/find-the-cause.md is true: each symptom is produced, and its commands show what the page says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from features.stack.redis_server import RedisServer
from tests.pages import ROOT, blocks_of
from tests.process.clocks import COMPILER, Clocks
from tests.process.cluster import Cluster
from tests.process.reading import Reader
from tests.process.symptoms import KEYED, SYMPTOMS

pytestmark = [pytest.mark.process, pytest.mark.long]

WALK, _, BY_SYMPTOM = (ROOT / "docs/how-to/find-the-cause.md").read_text().partition("\n## By symptom\n")
PARTS: Final[Mapping[str, str]] = dict(re.findall(r"^### (.+)\n((?:(?!###).*\n)*)", BY_SYMPTOM, re.MULTILINE))


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Clocks | None:
    return Clocks(tmp_path_factory.mktemp("clocks")) if COMPILER else None


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, clocks: Clocks | None) -> Iterator[Cluster]:
    """A stack with a broker of its own, a provider whose key its workers lack, and clocks that can be moved."""
    with RedisServer() as broker, pytest.MonkeyPatch.context() as patch:
        for name, value in (clocks.environment if clocks else {}).items():
            patch.setitem(os.environ, name, value)
        folder = tmp_path_factory.mktemp("night")
        cluster = Cluster(folder, users=False, rabbitmq=False, environment={"PALAVER_BROKER_URL": broker.url})
        with Path(cluster.providers_path).open("a") as table:
            table.write(KEYED.format(url=cluster.stack.model_url))
        with cluster:
            yield cluster


@pytest.fixture
def reader(night: Cluster, clocks: Clocks | None) -> Iterator[Reader]:
    night.mark()
    yield Reader(night, clocks=clocks)
    night.heal()
    for run_id in night.submitted:
        night.cancel(run_id)
    for run_id in night.submitted:
        night.ended(run_id)
    night.forget_cool_downs()


def test_the_walk_says_what_happens(reader: Reader) -> None:
    for kind, content in blocks_of(WALK):
        if kind == "console":
            reader.follow(content)


def test_every_symptom_can_be_produced() -> None:
    assert list(PARTS) == list(SYMPTOMS)


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_a_symptom_looks_as_the_page_says(reader: Reader, symptom: str) -> None:
    with SYMPTOMS[symptom](reader):
        for kind, content in blocks_of(PARTS[symptom]):
            if kind == "console":
                reader.follow(content)
