"""The console beside an archive, in a browser: what has left Redis is shown and goes on, and a page says how far behind
the archive is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import needs_chromium
from tests.postgres import PostgresServer, running_postgres
from tests.process.cluster import Cluster
from tests.process.consoles import Console, serving, tab_at
from tests.process.test_archive import RETENTION, gone

pytestmark = [pytest.mark.process, pytest.mark.long, needs_chromium]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Cluster]:
    archive = {"PALAVER_RETENTION": str(RETENTION), "PALAVER_ARCHIVE_URL": postgres.new_database()}
    with serving(tmp_path_factory.mktemp("archived"), **archive) as cluster:
        yield cluster


@pytest.fixture
def console(cluster: Cluster, chromium: str) -> Iterator[Console]:
    with tab_at(cluster.stack.url, chromium) as console:
        yield console
        console.holds()


def test_what_has_left_is_shown_as_it_was_and_goes_on(cluster: Cluster, console: Console) -> None:
    run = cluster.ended(cluster.submit("tool-2", "[[args {}]] look at 4711", tools=["record_idempotent"], tags=["old"]))
    page, conversation = f"runs/{run.id}", f"conversations/{run.conversation_id}"
    assert run.output is not None
    console.visit(conversation)
    console.sees("look at 4711", "record_idempotent", run.output)
    gone(cluster, run.id)
    console.visit("runs?tag=old")
    console.sees("completed")
    console.visit(conversation)
    console.sees("look at 4711", "record_idempotent", run.output, "from the archive")
    for tab in ("transcript", "steps", "waterfall", "events"):
        console.visit(f"{page}?tab={tab}")
        console.sees("It had left Redis")
    console.visit(conversation)
    console.write("textarea", "and then?")
    console.press("Send")
    console.tab.until("!document.querySelector('main').innerText.includes('from the archive')")
    console.sees("look at 4711", "and then?")


def test_a_page_says_how_far_behind_it_is_and_why(cluster: Cluster, console: Console, postgres: PostgresServer) -> None:
    gone(cluster, cluster.ended(cluster.submit("echo", "hello")).id)
    console.visit("archive")
    console.sees("up to date", "none since the API began")
    postgres.kill()
    stays = cluster.ended(cluster.submit("echo", "hello"))
    console.sees("away", "Runs go on", "Last error")
    assert cluster.http.get("/readyz").status_code == 200
    postgres.start()
    gone(cluster, stays.id)
    console.sees("up to date", "Last error")
