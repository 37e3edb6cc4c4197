"""The project of examples/django, as its users have it: uvicorn as it comes, a worker of Celery with a broker of its
own, PostgreSQL where there is one, and workers of Palaver beside it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_bytes
from typing import Any

import httpx
import orjson
import pytest

from features.stack.child import ChildCommand
from features.stack.ports import free_port
from features.stack.readiness import answers_ok
from features.stack.redis_server import RedisServer
from palaver import RunStatus
from tests.browser import needs_chromium, page
from tests.pages import ROOT
from tests.postgres import PASSWORD, USER, PostgresServer, find_programs
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

FOLDER = ROOT / "examples" / "django"
MANAGE = str(FOLDER / "manage.py")
ASKS = {"model": "fake/tool-1+rate-20", "tools": ["find_ticket"]}
PEOPLE = """
from django.contrib.auth.models import User
for name, staff in (("ann", True), ("bob", True), ("eve", False)):
    User.objects.create_user(name, is_staff=staff, is_superuser=staff)
"""


needs_postgres = pytest.mark.skipif(
    find_programs() is None,
    reason="POSTGRESQL IS NOT TESTED: its programs are not there; apt-get install postgresql",
)


class Desk:
    """The project: its database, its broker and its processes."""

    def __init__(self, folder: Path, more: ExitStack) -> None:
        self.database: PostgresServer | None = None
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "desk.db")}
        if find_programs() is not None:
            self.database = more.enter_context(PostgresServer())
            name = self.database.new_database().rpartition("/")[2]
            place = {"HOST": "127.0.0.1", "PORT": str(self.database.port), "NAME": name}
            database = {"ENGINE": "django.db.backends.postgresql", "USER": USER, "PASSWORD": PASSWORD, **place}
        broker = more.enter_context(RedisServer())
        self.environment = {
            "DESK_BROKER_URL": broker.url,
            "DESK_DATABASE": json.dumps(database),
            "DJANGO_SETTINGS_MODULE": "desk.settings",
            "PALAVER_REQUIRE_KEYS": "true",
            "PALAVER_SECRET_KEY": base64.b64encode(token_bytes(32)).decode(),
            "PYTHONPATH": str(FOLDER),
        }
        self.manage("migrate", "-v0")
        self.manage("migrate", "--run-syncdb", "-v0")
        self.manage("shell", "-v0", "-c", PEOPLE)
        told = self.manage("shell", "-v0", "-c", _SETTINGS_OF_WORKERS)
        self.environment |= json.loads(told.splitlines()[-1])
        self.cluster = more.enter_context(Cluster(folder, environment=self.environment))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        there = self.cluster.children("api")[0].environment
        self.site = ChildCommand(
            "desk-1",
            (sys.executable, "-m", "uvicorn", "desk.asgi:application", "--port", str(self.port)),
            environment=there,
            log_path=folder / "desk.log",
            ready=lambda _: answers_ok(f"{self.url}/agents/readyz"),
        )
        self.celery = ChildCommand(
            "celery-1",
            (sys.executable, "-m", "celery", "-A", "desk:celery", "worker", "-c", "1", "-l", "INFO"),
            environment=there,
            log_path=folder / "celery.log",
            ready=lambda celery: "ready." in celery.output,
        )
        for child in (self.site, self.celery):
            more.callback(child.reap, time.monotonic() + PATIENCE)
            more.callback(child.terminate)
            child.start()
            child.wait_until_ready(time.monotonic() + PATIENCE)

    def manage(self, *words: str, **more: str) -> str:
        """Run a command of the project; return what it says."""
        done = subprocess.run(
            [sys.executable, MANAGE, *words],
            env={**os.environ, **self.environment, **more},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kill_the_site(self) -> None:
        """SIGKILL to the server of the project, which starts again."""
        self.site.kill(signal.SIGKILL)
        self.site.start()
        self.site.wait_until_ready(time.monotonic() + PATIENCE)

    @contextmanager
    def person(self, name: str) -> Iterator[httpx.Client]:
        """A browser in which this person is logged in."""
        with httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False) as client:
            client.get("/")
            client.headers["x-csrftoken"] = client.cookies["csrftoken"]
            assert client.post(f"/enter/{name}").status_code == 302
            client.headers["x-csrftoken"] = client.cookies["csrftoken"]
            yield client


_SETTINGS_OF_WORKERS = """
import json
from palaver.contrib.django.project_settings import environment
print(json.dumps(environment()))
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with ExitStack() as more:
        yield Desk(tmp_path_factory.mktemp("desk"), more)


@contextmanager
def listening(person: httpx.Client, conversation: str) -> Iterator[Iterator[tuple[str, Any]]]:
    """The events of a conversation, from its beginning, each with its type."""
    path = f"/agents/v1/conversations/{conversation}/events"
    with person.stream("GET", path, headers={"accept": "text/event-stream"}) as told:
        assert told.status_code == 200
        data = (line.removeprefix("data: ") for line in told.iter_lines() if line.startswith("data: "))
        yield ((event["type"], event) for event in map(orjson.loads, data))


def take(person: httpx.Client, subject: str) -> dict[str, Any]:
    taken = person.post("/tickets", data={"subject": subject})
    assert taken.status_code == 200, taken.text
    ticket: dict[str, Any] = taken.json()
    return ticket


def say(person: httpx.Client, conversation: str, text: str, **agent: Any) -> dict[str, Any]:
    body = {"conversation_id": conversation, "input": text, "agent": {**ASKS, **agent}}
    taken = person.post("/agents/v1/runs", json=body)
    assert taken.status_code == 202, taken.text
    run: dict[str, Any] = taken.json()
    return run


def test_a_ticket_is_looked_at_and_its_end_is_heard(desk: Desk) -> None:
    with desk.person("ann") as ann, desk.person("eve") as eve:
        ticket = take(ann, "The kettle leaks")
        with listening(ann, ticket["conversation"]) as events:
            seen = {}
            for type, event in events:
                seen[type] = event
                if type == "run.finished":
                    break
        assert seen["tool.finished"]["message"]["content"] == "The kettle leaks (asked)"
        assert seen["run.finished"]["status"] == "completed"
        state = f"/tickets/{ticket['number']}"
        eventually(lambda: ann.get(state).json()["state"] == "completed")
        assert eve.get("/agents/v1/runs").status_code == 401, "no person of the desk"


def test_a_refund_waits_for_a_person_and_a_run_is_stopped(desk: Desk) -> None:
    with desk.person("ann") as ann, desk.person("bob") as bob:
        ticket = take(ann, "The lid is missing")
        number = ticket["number"]
        wish = f'Refund it. [[args {{"number": {number}}}]]'
        run = say(ann, ticket["conversation"], wish, model="fake/use-refund+tool-1", tools=["refund"])
        with listening(bob, ticket["conversation"]) as events:
            action = next(event["action"] for type, event in events if type == "action.required")
        assert ann.get(f"/tickets/{number}").json()["refunded"] is False
        decision = {"type": "approval", "action_id": action["id"], "decision": "approve", "digest": action["digest"]}
        assert bob.post(f"{run['links']['self']}/input", json={"items": [decision]}).status_code in (200, 202)
        assert ann.get(f"{run['links']['self']}?wait=30").json()["status"] == "completed"
        assert ann.get(f"/tickets/{number}").json()["refunded"] is True
        stopped = say(ann, ticket["conversation"], "Tell me all.", model="fake/hang", tools=[])
        ann.post(f"{stopped['links']['self']}/cancel", json={})
        assert ann.get(f"{stopped['links']['self']}?wait=30").json()["status"] == "cancelled"


def test_its_commands(desk: Desk) -> None:
    redis = desk.cluster.children("api")[0].environment["PALAVER_REDIS_URL"]
    assert "PLACE" in desk.manage("palaver", "check", PALAVER_REDIS_URL=redis)
    assert "no issues" in desk.manage("check", "--deploy", "--tag", "palaver", PALAVER_REDIS_URL=redis)


def test_a_token_of_the_site_opens_one_conversation_at_the_api(desk: Desk) -> None:
    there = desk.cluster.children("api")[0].environment
    needed = {name: text for name, text in there.items() if name.startswith("PALAVER_")}
    with desk.person("ann") as ann:
        one, other = (take(ann, f"Token {number}")["conversation"] for number in range(2))
    token = desk.manage("shell", "-v0", "-c", _TOKEN.format(one), **needed).splitlines()[-1]
    with httpx.Client(
        base_url=desk.cluster.stack.url, headers={"authorization": f"Bearer {token}"}, trust_env=False
    ) as api:
        assert api.get(f"/v1/conversations/{one}/messages").status_code == 200
        assert api.get(f"/v1/conversations/{other}/messages").status_code in (403, 404)
        taken = api.post("/v1/runs", json={"conversation_id": one, "input": "Look.", "agent": ASKS})
        assert taken.json()["submitted_by"] == "user:ann", taken.text


_TOKEN = """
from django.contrib.auth.models import User
from palaver.contrib.django import token_for
print(token_for(User.objects.get(username="ann"), "{}").token)
"""


def of_the_desk(desk: Desk) -> int:
    """Connections that processes of the project have to the database."""
    assert desk.database is not None
    name = json.loads(desk.environment["DESK_DATABASE"])["NAME"]
    [(count,)] = desk.database.execute(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'")
    return int(count)


@needs_postgres
@pytest.mark.parametrize("calls", [80, pytest.param(10_000, marks=pytest.mark.chaos)])
def test_connections_of_calls_stay_few_and_none_is_left(desk: Desk, calls: int) -> None:
    assert desk.database is not None
    with desk.person("ann") as ann:
        chats = [take(ann, f"Ticket {number}")["conversation"] for number in range(4)]
        eventually(lambda: of_the_desk(desk) == 0)
        most, left = 0, calls
        while left > 0:
            batch, left = chats[: -(-left // 20)], left - 20 * len(chats)
            runs = [say(ann, each, "Look.", model="fake/parallel-4-5", max_steps=6) for each in batch]
            for run in runs:
                while (told := ann.get(f"{run['links']['self']}?wait=1").json())["status"] not in (
                    "completed",
                    "failed",
                ):
                    most = max(most, of_the_desk(desk))
                assert told["status"] == "completed"
                assert told["usage"]["tool_calls"] == 20
        # Four children, and for a moment a thread of the site and the task that hears of an end.
        assert most <= 4 + 8
        eventually(lambda: of_the_desk(desk) == 0)
        desk.database.kill()
        desk.database.start()
        run = say(ann, chats[0], "Look again.", model="fake/tool-4")
        assert ann.get(f"{run['links']['self']}?wait=60").json()["status"] == "completed"
        told = ann.get(run["links"]["events"], headers={"accept": "application/json"}).json()["data"]
        results = [event["message"]["content"] for event in told if event["type"] == "tool.finished"]
        assert len(results) == 4
        assert all("(" in each or each == "There is no such ticket." for each in results), "no broken connection"


@needs_postgres
@pytest.mark.parametrize("chats", [4, pytest.param(50, marks=pytest.mark.chaos)])
def test_nothing_is_lost_when_everything_is_killed(desk: Desk, chats: int) -> None:
    assert desk.database is not None
    with desk.person("ann") as ann:
        begun = [take(ann, f"Chat {number}")["conversation"] for number in range(chats)]
        runs = [say(ann, each, "Look.", model="fake/tool-3+rate-20") for each in begun]
        paths = [run["links"]["self"] for run in runs]
        eventually(lambda: any(ann.get(path).json()["status"] != "queued" for path in paths))
        for kill in (desk.kill_the_site, lambda: desk.cluster.kill("worker"), lambda: desk.cluster.kill("tools")):
            kill()
            desk.cluster.heal()
        desk.database.kill()
        desk.database.start()

        def ended(path: str) -> str:
            told = ann.get(f"{path}?wait=30").json()
            return str(told["status"]) if RunStatus(told["status"]).terminal else ""

        assert [eventually(lambda path=path: ended(path)) for path in paths] == ["completed"] * chats  # type: ignore[misc]
        for conversation in begun:
            said = ann.get(f"/agents/v1/conversations/{conversation}/messages?limit=100").json()["data"]
            calls = [call["id"] for each in said for call in each.get("tool_calls") or ()]
            assert sorted(calls) == sorted(each["call_id"] for each in said if each["role"] == "tool")


@pytest.mark.chaos
@needs_chromium
def test_its_page(desk: Desk, chromium: str) -> None:
    log = "document.querySelector('#log').innerText"

    def say_it(text: str) -> str:
        return f"document.forms.say.subject.value = {text!r}, document.forms.say.requestSubmit(), true"

    with page(chromium) as tab:
        tab.open(f"{desk.url}/")
        tab.until("document.querySelectorAll('[action] button').length === 2")
        tab.evaluate("document.querySelector('[action] button').click(), true")
        tab.until("document.querySelector('#who').innerText.includes('ann') && !document.forms.say.hidden")
        tab.evaluate(say_it("The handle is loose"))
        tab.until(f"document.title === 'completed' && {log}.includes('→ ')")
        tab.evaluate(say_it("Refund it."))
        tab.until("document.querySelectorAll('#actions button').length === 2")
        tab.evaluate("document.querySelector('#actions button').click(), true")
        tab.until(f"document.title === 'completed' && {log}.includes('refunded')")
        tab.evaluate(say_it("And again."))
        tab.until("!document.querySelector('#stop').disabled && (document.querySelector('#stop').click(), true)")
        tab.until("document.title === 'cancelled'")
        shown = tab.evaluate(log)
        tab.reload()
        tab.until(f"document.title === 'cancelled' && {log} === {shown!r}")
        assert tab.errors == []
