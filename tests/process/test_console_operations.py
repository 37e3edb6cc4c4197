"""The console's pages for who runs the service: what they show of a real stack, and what their buttons do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.browser import needs_chromium
from tests.process.cluster import Cluster
from tests.process.consoles import Console, serving, tab_at
from tests.process.test_mcp_tools import Web
from tests.process.typed import palaver
from tests.process.webhook_receivers import Receivers
from tests.unit.api_world import SECRET_KEY
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long, needs_chromium]

CELLS: Final = 8


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """An MCP server whose tools ask people."""
    server = Web(tmp_path_factory.mktemp("asking"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, heard: Receivers, asking: Web) -> Iterator[Cluster]:
    hosts = {"PALAVER_WEBHOOK_HOSTS": heard.port, "PALAVER_INLINE_MCP_HOSTS": asking.port}
    more = {name: f"127.0.0.1:{port}" for name, port in hosts.items()}
    with serving(tmp_path_factory.mktemp("operations"), PALAVER_SECRET_KEY=SECRET_KEY, **more) as cluster:
        yield cluster


@pytest.fixture
def console(cluster: Cluster, chromium: str) -> Iterator[Console]:
    cluster.mark()
    with tab_at(cluster.stack.url, chromium) as console:
        yield console
    cluster.heal()


def _done(answer: Any) -> Any:
    assert answer.status_code < 300, answer.text
    return answer.json()


def _operator(cluster: Cluster, name: str) -> str:
    """The key of an operator, as it is made beside the store."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")},
        **cluster.places,
    }
    done = palaver("keys", "create", name, "--operator", "--json", environment=environment)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["key"])


def _kept(cluster: Cluster, name: str, *instructions: str) -> None:
    for text in instructions:
        _done(cluster.http.put(f"/v1/agents/{name}", json={"model": "fake/echo", "instructions": text}))


def _choose(console: Console, label: str, value: str) -> None:
    """Choose in the menu of that label."""
    found = f"[...document.querySelectorAll('label')].find((each) => each.innerText.startsWith({label!r}))"
    console.tab.until(f"!!{found}")
    console.tab.evaluate(
        f"(() => {{ const menu = {found}.querySelector('select'); menu.value = {value!r};"
        " menu.dispatchEvent(new Event('change', { bubbles: true })) })()"
    )


def test_two_versions_of_an_agent_stand_beside_each_other(cluster: Cluster, console: Console) -> None:
    _kept(cluster, "helper", "Be kind.", "Be kind and short.")
    console.open("agents")
    console.sees("helper", "Be kind and short.")
    console.open("agents/helper")
    console.sees("version 2 of 2")
    _choose(console, "Beside version", "1")
    console.sees("Version 1 to version 2", '-   "instructions": "Be kind."', '+   "instructions": "Be kind and short."')
    console.tab.reload()
    console.sees("Version 1 to version 2")
    console.holds()


def test_a_schedule_is_paused_and_run_now(cluster: Cluster, console: Console) -> None:
    _kept(cluster, "reporter", "Report.")
    order = {"cron": "0 3 1 1 *", "timezone": "Europe/Berlin", "run": {"agent": "reporter", "input": "the year"}}
    _done(cluster.http.put("/v1/schedules/yearly", json=order))
    console.open("schedules")
    console.sees("yearly", "0 3 1 1 * (Europe/Berlin)", "planned")
    console.press("pause")
    console.sees("paused")
    assert _done(cluster.http.get("/v1/schedules/yearly"))["paused"]
    console.press("resume")
    console.sees("planned")
    console.press("run now")
    console.sees("completed", "echo: the year")
    console.open("schedules/yearly")
    console.sees("What it runs", "reporter")
    console.holds()


def test_agents_of_a_batch_stand_beside_each_other(cluster: Cluster, console: Console) -> None:
    _kept(cluster, "old", "Old.")
    _done(cluster.http.put("/v1/agents/new", json={"model": "fake/401"}))
    items = [{"input": f"case {number}", "id": f"case-{number}"} for number in range(CELLS // 2)]
    order = {"name": "release", "agents": ["old", "new"], "items": items, "complete": True}
    batch = _done(cluster.http.post("/v1/batches", json=order))["id"]
    console.open("batches")
    console.sees("release", f"{CELLS} of {CELLS}", "done")
    console.open(f"batches/{batch}")
    console.sees("case-0", "completed", "failed", "authentication")
    _choose(console, "Show", "different")
    console.sees("case-3")
    console.press("retry what failed")
    eventually(lambda: _retried(cluster, batch))
    console.holds()


def _retried(cluster: Cluster, batch: str) -> bool:
    found = _done(cluster.http.get(f"/v1/batches/{batch}/results"))["data"]
    return [result["attempt"] for result in found if result["agent"] == "new"] == [2] * (CELLS // 2)


def test_a_delivery_is_replayed(cluster: Cluster, console: Console, heard: Receivers) -> None:
    made = _done(cluster.http.post("/v1/webhooks", json={"url": heard.url("ok"), "types": ["run.succeeded"]}))
    cluster.ended(cluster.submit("echo", "for the webhook"))
    eventually(lambda: len(heard.events("ok")) == 1)
    console.open("webhooks")
    console.sees(heard.url("ok"), "run.succeeded")
    console.open(f"webhooks/{made['id']}")
    console.sees("delivered", "204")
    console.press("again")
    eventually(lambda: len(heard.events("ok")) == 2)
    assert len({headers["webhook-id"] for headers, _, _ in heard.events("ok")}) == 1
    console.press("switch off")
    console.sees("switch on")
    assert not _done(cluster.http.get(f"/v1/webhooks/{made['id']}"))["enabled"]
    console.holds()


def test_a_key_is_made_shown_once_and_revoked(cluster: Cluster, console: Console) -> None:
    console.open("keys", key=_operator(cluster, "warden"))
    console.tab.until("!!document.querySelector('summary')")
    console.tab.evaluate("document.querySelector('summary').click()")
    console.write("details input", "of-the-browser")
    console.press("Make the key")
    made = console.tab.until("document.querySelector('dialog .secret')?.innerText")
    assert cluster.http.get("/v1/runs", headers={"Authorization": f"Bearer {made}"}).status_code == 200
    console.tab.evaluate("document.querySelector('dialog .close').click()")
    console.sees("of-the-browser", "runs:read")
    assert made not in console.tab.evaluate("document.documentElement.innerHTML")
    made_row = "[...document.querySelectorAll('main tr')].find((row) => row.innerText.includes('of-the-browser'))"
    console.tab.evaluate(f"{made_row}.querySelector('button.danger').click()")
    console.press("Revoke it")
    console.tab.until("!document.querySelector('main').innerText.includes('of-the-browser')")
    eventually(lambda: cluster.http.get("/v1/runs", headers={"Authorization": f"Bearer {made}"}).status_code == 401)
    console.open("audit")
    console.sees("warden", "operator", "201", "204")
    console.holds()


def test_a_tenant_gets_a_cap(cluster: Cluster, console: Console) -> None:
    console.open("tenants")
    console.sees("default")
    console.tab.until("document.querySelector('main td button')?.title === 'Caps are changed with keys of operators.'")
    console.press("Sign out")
    console.open("tenants", key=_operator(cluster, "owner"))
    console.press("caps")
    console.tab.until("!!document.querySelector('dialog[open] input')")
    console.tab.evaluate("[...document.querySelectorAll('dialog input')][1].focus()")
    console.tab.send("Input.insertText", text="7")
    console.press("Set")
    console.tab.until("[...document.querySelectorAll('main td')].some((cell) => cell.innerText === '7')")
    assert _done(cluster.http.get("/v1/tenants/default"))["max_in_flight"] == 7
    console.press("caps")
    console.tab.until("[...document.querySelectorAll('dialog[open] input')][1]?.value === '7'")
    console.tab.evaluate(
        "(() => { const field = [...document.querySelectorAll('dialog input')][1]; field.value = '';"
        " field.dispatchEvent(new Event('input', { bubbles: true })) })()"
    )
    console.press("Set")
    console.tab.until("[...document.querySelectorAll('main td')].every((cell) => cell.innerText !== '7')")
    console.holds()


def test_the_sick_worker_and_provider_are_shown(cluster: Cluster, console: Console) -> None:
    console.open("fleet")
    console.sees("model", "tools", "Workers", "idle")
    cluster.kill("tools")
    console.sees("no worker")
    cluster.heal()
    console.tab.until("!document.querySelector('main').innerText.includes('no worker')")
    console.open("tools")
    console.sees("record", "calculator", "fake/*")
    console.holds()


def test_what_was_done_is_plotted_and_counted(cluster: Cluster, console: Console) -> None:
    for model in ("echo", "401"):
        cluster.ended(cluster.submit(model))
    console.open("statistics")
    console.sees("Runs by what became of them", "authentication", "Queue time")
    console.tab.until("document.querySelectorAll('.plot svg rect.series-0').length > 0")
    console.press("as a table")
    console.tab.until("!!document.querySelector('.plot table td.number')")
    for window in ("day", "week"):
        _choose(console, "Of", window)
        console.tab.until(f"location.hash.includes('window={window}') && !!document.querySelector('.plot svg')")
    console.open("usage?by=model")
    console.sees("fake/echo", "In all")
    console.holds()


def test_pages_say_which_right_they_need(cluster: Cluster, console: Console) -> None:
    made = _done(cluster.http.post("/v1/keys", json={"name": "reader", "scopes": ["runs:read"]}))
    console.open("keys", key=made["key"])
    console.sees("none of the rights admin")
    shown = json.loads(
        console.tab.evaluate("JSON.stringify([...document.querySelectorAll('nav li')].map((each) => each.innerText))")
    )
    assert {"Webhooks", "Keys", "Audit", "Tenants", "Usage", "Statistics", "Playground"}.isdisjoint(shown)
    assert {"Runs", "Queues and workers", "Schedules", "Batches"} <= {*shown}
    console.open("schedules", key=None)
    console.tab.until("[...document.querySelectorAll('main button')].every((each) => each.disabled)")
    console.holds()


def test_a_form_with_choices_is_filled_in(cluster: Cluster, console: Console, asking: Web) -> None:
    server = {"web": {"url": f"http://127.0.0.1:{asking.port}/mcp"}}
    agent = {"mcp_servers": server, "approvals": {"require": "never"}}
    run = cluster.submit("tool-1+use-web__chooses", "[[args {}]]", agent=agent)
    cluster.pending(run)
    console.open(f"runs/{run}")
    console.sees("Which?", "The large one", "at least 1, at most 2", "Note (may be left out)")
    console.tab.evaluate(
        "(() => { const menu = document.querySelector('select[name=size]'); menu.value = 'l';"
        " menu.dispatchEvent(new Event('change', { bubbles: true })) })()"
    )
    for value in ("r", "b"):
        console.tab.evaluate(f"document.querySelector('input[name=colours][value={value}]').click()")
    console.press("Answer")
    console.sees("completed")
    (answered,) = (line for line in asking.journal.read_text().splitlines() if line.startswith("chose "))
    content = json.loads(answered.removeprefix("chose "))["which"]["content"]
    assert content == {"size": "l", "colours": ["g", "b"], "toppings": ["salt"], "when": "noon"}
    console.holds()


def test_a_session_ends_by_itself(cluster: Cluster, console: Console) -> None:
    run = cluster.submit("echo")
    cluster.ended(run)
    console.open(f"runs/{run}")
    console.sees("completed", "whole")
    # Nothing is asked for any more of a run that has ended: what comes is no refusal of a request.
    console.tab.evaluate(
        "(() => { const [[place, kept]] = Object.entries(sessionStorage);"
        " sessionStorage.setItem(place, JSON.stringify({ ...JSON.parse(kept), until: Date.now() + 2000 })) })()"
    )
    console.tab.reload()
    console.sees("completed", "whole")
    console.sees("The session has ended after 12 hours.")
    assert console.tab.evaluate("sessionStorage.length") == 0
    console.holds()


def test_a_message_is_taken_back(cluster: Cluster, console: Console) -> None:
    first = cluster.ended(cluster.submit("echo", "keep this"))
    cluster.ended(cluster.submit("400", "what is refused", conversation_id=first.conversation_id))
    console.open(f"conversations/{first.conversation_id}")
    console.sees("keep this", "what is refused", "take back")
    newest = "[...document.querySelectorAll('article button')].findLast((each) => each.innerText === 'take back')"
    console.tab.evaluate(f"{newest}.click()")
    console.click("Take back", "dialog")
    console.sees("withdrawn: models do not see it")
    said = _done(cluster.http.get(f"/v1/conversations/{first.conversation_id}/messages"))["data"]
    assert [each["withdrawn"] for each in said if each["role"] == "user"] == [False, True]
    run = cluster.ended(cluster.submit("echo", "and now?", conversation_id=first.conversation_id))
    assert run.status == "completed"
    console.holds()
