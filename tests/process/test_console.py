"""The console in a browser, against a real stack: what people see and press, through kills, under its own policy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from features.stack.ports import free_port
from tests.browser import needs_chromium
from tests.process.cluster import Cluster
from tests.process.consoles import KEY, TEXT, Console, serving, tab_at
from tests.process.relay import Relay

pytestmark = [pytest.mark.process, pytest.mark.long, needs_chromium]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with serving(tmp_path_factory.mktemp("console")) as cluster:
        yield cluster


@pytest.fixture
def console(cluster: Cluster, chromium: str) -> Iterator[Console]:
    cluster.mark()
    with tab_at(cluster.stack.url, chromium) as console:
        yield console
    cluster.heal()


def _key(cluster: Cluster, *scopes: str) -> str:
    made = cluster.http.post("/v1/keys", json={"name": "ann", "scopes": [*scopes]})
    assert made.status_code == 201, made.text
    return str(made.json()["key"])


def test_who_has_no_key_signs_in(cluster: Cluster, console: Console) -> None:
    console.open("runs", key=None)
    console.write("input[name=key]", "not-the-key-of-anybody")
    console.press("Sign in")
    console.sees("Authorization")
    console.open("runs")
    console.sees("Runs")
    kept = console.tab.evaluate("[JSON.stringify(localStorage), document.cookie, location.href, history.length > 0]")
    assert kept[:2] == ["{}", ""]
    assert KEY not in kept[2]
    console.tab.reload()
    console.sees("Runs")
    console.press("Sign out")
    console.tab.until("!!document.querySelector('input[name=key]')")
    assert console.tab.evaluate("sessionStorage.length") == 0
    assert KEY not in "".join(cluster.new_logs().values())
    console.holds()


def test_runs_are_listed_and_filtered_by_the_address(cluster: Cluster, console: Console) -> None:
    good = cluster.submit("echo", "a good one", tags=["filtered"])
    bad = cluster.submit("401", "a bad one", tags=["filtered"])
    for run in (good, bad):
        cluster.ended(run)
    console.open("runs?tag=filtered")
    console.sees("a good one", "a bad one", "authentication", "2 in all")
    console.tab.evaluate(
        "(() => { const status = document.querySelector('select'); status.value = 'failed';"
        " status.dispatchEvent(new Event('change', { bubbles: true })) })()"
    )
    console.tab.until(f"{TEXT}.includes('1 in all') && location.hash.includes('status=failed')")
    assert "a good one" not in console.tab.evaluate(TEXT)
    console.tab.reload()
    console.sees("a bad one", "1 in all")
    # What no field shows is a part that one click takes away.
    console.press("tag: filtered \N{MULTIPLICATION SIGN}")
    console.tab.until("!location.hash.includes('tag=') && location.hash.includes('status=failed')")
    console.write("input[data-filter]", f"{good}:1:1")
    console.tab.evaluate("document.querySelector('form[role=search]').requestSubmit()")
    console.sees("completed", "echo: a good one")
    console.holds()


def test_many_are_retried_once_it_was_said_how_many(cluster: Cluster, console: Console) -> None:
    runs = [cluster.submit("401", tags=["many"]) for _ in range(3)]
    for run in runs:
        cluster.ended(run)
    console.open("runs?tag=many&status=failed")
    console.sees("3 in all")
    console.press("Retry these…")
    console.tab.until("document.querySelector('dialog').innerText.includes('3 of 3 would be retried')")
    console.press("Retry 3")
    console.tab.until("document.querySelector('dialog').innerText.includes('3 of 3 retried')")
    assert all(cluster.run(run).retried_as for run in runs)
    for run in runs:
        cluster.ended(str(cluster.run(run).retried_as))
    console.holds()


@pytest.fixture(scope="module")
def planned(cluster: Cluster) -> list[str]:
    """More runs than a page holds at first, the oldest one first; they are to begin tomorrow."""
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    return [cluster.submit("echo", tags=["planned"], start_after=later) for _ in range(PLANNED)]


def test_older_rows_stay_true(cluster: Cluster, console: Console, planned: list[str]) -> None:
    console.open("runs?tag=planned")
    console.sees("the newest 50")
    console.press("Older ones")
    console.sees(f"{PLANNED} in all")
    rows = "[...document.querySelectorAll('main tbody tr')].map((row) => row.innerText)"
    assert f"…{planned[0][-8:]}" in console.tab.evaluate(rows)[-1]
    cluster.cancel(planned[0])
    console.tab.until(f"{rows}.at(-1).includes('cancelled') && {rows}.length === {PLANNED}")
    console.holds()


def test_many_are_cancelled_until_somebody_stops_it(cluster: Cluster, console: Console, planned: list[str]) -> None:
    left = [run for run in planned if cluster.run(run).status == "queued"]
    console.open("runs?tag=planned&status=queued")
    console.press("Cancel these…")
    console.tab.until(f"document.querySelector('dialog').innerText.includes('{len(left)} of {len(left)} would be')")
    console.tab.evaluate(HELD)
    console.press(f"Cancel {len(left)}")
    console.tab.until("window.held")
    console.press("Stop")
    console.tab.evaluate("window.release()")
    console.tab.until(f"document.querySelector('dialog').innerText.includes('Stopped: 100 of {len(left)} cancelled.')")
    assert sorted(cluster.run(run).status for run in left) == ["cancelled"] * 100 + ["queued"] * (len(left) - 100)
    console.holds()


def test_text_appears_as_it_comes_and_a_button_cancels(cluster: Cluster, console: Console) -> None:
    run = cluster.submit("say-4000+rate-20")
    console.open(f"runs/{run}")
    console.sees("running", "w1 w2")
    seen = len(console.tab.evaluate(TEXT))
    console.tab.until(f"{TEXT}.length > {seen + 20}")
    console.press("Cancel")
    console.press("Cancel the run")
    console.sees("cancelled", "Stopped by ops")
    assert cluster.ended(run).status == "cancelled"
    console.holds()


def test_a_long_transcript_is_drawn_whole_when_somebody_asks(cluster: Cluster, console: Console) -> None:
    run = cluster.submit("parallel-40-8", tools=["calculator"])
    cluster.ended(run)
    console.open(f"runs/{run}")
    console.sees("completed", "whole", "Show all 10 messages")
    assert console.tab.evaluate("document.querySelectorAll('main .call').length") <= 300
    console.press("Show all 10 messages")
    console.tab.until("document.querySelectorAll('main .call').length === 320")
    console.holds()


def test_a_decision_is_one_key(cluster: Cluster, console: Console) -> None:
    asks = {"approvals": {"require": "always"}}
    runs = [cluster.submit("tool-1", text, tools=["record"], agent=asks) for text in ("the first", "the second")]
    for run in runs:
        cluster.pending(run)
    console.open("actions")
    console.sees("the first", "the second", "record")
    console.type("a")
    console.sees("record: approved.")
    console.tab.until(f"!{TEXT}.includes('the first')")
    console.type("d")
    console.sees("record: denied.", "Nothing waits for anybody.")
    assert [cluster.ended(run).status for run in runs] == ["completed", "completed"]
    assert [len(cluster.tool_starts(run)) for run in runs] == [1, 0]
    console.holds()


def test_arguments_are_edited_and_a_clients_tool_gets_its_output(cluster: Cluster, console: Console) -> None:
    asks = {"approvals": {"require": "always"}}
    edited = cluster.submit("tool-1", tools=["calculator"], agent=asks)
    cluster.pending(edited)
    console.open(f"runs/{edited}")
    console.press("Edit arguments")
    console.tab.evaluate(
        "(() => { const field = document.querySelector('textarea.code'); field.value = '{\"expression\": \"40 + 2\"}';"
        " field.dispatchEvent(new Event('input', { bubbles: true })) })()"
    )
    console.press("Run with these")
    console.sees("completed", "The user changed the arguments of this call", "42")
    declared = {"client_tools": [{"name": "open_file", "parameters": {"type": "object", "properties": {}}}]}
    asked = cluster.submit("tool-1", agent=declared)
    cluster.pending(asked)
    console.open(f"runs/{asked}")
    console.sees("open_file", "waits for its client")
    console.write("textarea[aria-label=Output]", "opened")
    console.press("Send output")
    console.sees("completed", "the last one: opened")
    console.holds()


def test_a_page_heals_when_the_api_and_a_worker_are_killed(cluster: Cluster, console: Console) -> None:
    run = cluster.submit("say-120+stall-1-20")
    console.open(f"runs/{run}")
    console.sees("w1 w2", "live")
    cluster.kill("api")
    console.sees("reconnecting")
    cluster.kill("worker")
    cluster.heal()
    console.sees("completed", "w119 w120")
    console.tab.until("document.querySelectorAll('article.assistant').length === 1")
    console.press("Waterfall")
    console.tab.until("document.querySelectorAll('.bad-part').length >= 2")  # that of the legend, and the lost attempt
    console.holds()


PLANNED: Final = 120
HELD: Final = """
const plain = window.fetch;
window.fetch = async (...request) => {
  const answer = await plain(...request);
  if (String(request[0]).endsWith("v1/runs/actions")) {
    window.held = true;
    await new Promise((done) => (window.release = done));
  }
  return answer;
};
"""
"""What holds back the answer to an act on many runs until it is released: somebody has time to stop it."""


def test_what_each_step_cost_and_how_many_runs_there_are(cluster: Cluster, console: Console) -> None:
    run = cluster.submit("dear/echo", "word " * 400)
    cost = cluster.ended(run).usage.cost_usd
    assert cost is not None
    assert cost >= 1
    console.open(f"runs/{run}")
    console.press("Agent and usage")
    console.tab.until(f"document.querySelector('[aria-label=\"Usage by step\"]')?.innerText.includes('${cost:.2f}')")
    console.open("runs?status=failed")
    completed = cluster.http.get("/v1/runs/count").json()["statuses"]["completed"]
    console.tab.until(
        f"document.querySelector('[aria-label=\"All runs by status\"]')?.innerText.includes('completed {completed:,}')"
    )
    console.holds()


HOSTILE: Final = (
    "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'><svg onload='window.hit = 1'></svg>\n\n"
    "[press](javascript:window.hit=1) [data](data:text/html,<script>window.hit=1</script>) "
    "![seen](https://example.invalid/pixel.png) <iframe srcdoc='<script>parent.hit=1</script>'></iframe>\n\n"
    "\u202egpj.exe\u202c \u200bzero\n\n`<b>code</b>` **<i>bold</i>** <style>body { display: none }</style>\n\n"
)


def test_a_hostile_transcript_executes_nothing(cluster: Cluster, console: Console) -> None:
    word = "x" * 300_000
    run = cluster.submit("echo", HOSTILE + word, tags=["<img/src=x/onerror=hit=1>"])
    cluster.ended(run)
    console.open(f"runs/{run}")
    console.sees("echo: <script>", "«U+202E»gpj.exe", "«U+200B»zero", "show all")
    for name, there in (("Steps", ".step"), ("Waterfall", ".fall"), ("Events", "td"), ("Agent and usage", "td")):
        console.press(name)
        console.tab.until(f"document.querySelectorAll('main {there}').length > 0")
    console.press("Transcript")
    console.tab.until("document.querySelectorAll('button.more').length === 2")
    console.tab.evaluate("document.querySelector('button.more').click()")
    console.tab.until(f"document.querySelector('main').textContent.length > {len(word)}")
    console.open("runs")
    console.sees("<script>")
    inside = "document.querySelectorAll('main script, main svg, main iframe, main img, main style').length"
    assert console.tab.evaluate(f"[window.hit ?? null, {inside}]") == [None, 0]
    links = console.tab.evaluate("[...document.querySelectorAll('main a')].map((each) => each.protocol)")
    assert {*links} <= {"http:", "https:"}
    assert console.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    console.holds()


def test_a_key_without_a_right_sees_why(cluster: Cluster, console: Console) -> None:
    run = cluster.submit("tool-1", tools=["record"], agent={"approvals": {"require": "always"}})
    cluster.pending(run)
    console.open(f"runs/{run}", key=_key(cluster, "runs:read"))
    console.sees("Waits for a decision", "Your key has no right to decide: actions:approve.", "runs:act")
    active = (
        "[...document.querySelectorAll('main button')].filter((each) => !each.disabled).map((each) => each.innerText)"
    )
    offered = {*console.tab.evaluate(active)}
    assert offered.isdisjoint({"Approve", "Deny", "Edit arguments", "Cancel", "Pause", "Steer"}), offered
    console.type("a")
    pages = console.tab.evaluate("[...document.querySelectorAll('nav li')].map((each) => each.innerText)")
    assert pages[:3] == ["Runs", "Actions", "Conversations"]
    assert "Playground" not in pages
    assert cluster.run(run).status == "requires_action"
    console.open("playground", key=None)
    console.sees("runs:submit")
    cluster.cancel(run)
    console.holds()


def test_a_conversation_is_begun_and_goes_on(cluster: Cluster, console: Console) -> None:
    console.open("playground")
    console.sees("Model")
    console.write("input[list=models]", "fake/echo")
    console.write("textarea[aria-label=Message]", "good day")
    console.press("Begin")
    console.sees("echo: good day")
    assert console.tab.evaluate("location.hash").startswith("#/conversations/conv_")
    console.write("textarea[aria-label=Message]", "and again")
    console.press("Send")
    console.sees("echo: and again")
    console.open("conversations?updated_before=2020-01-01T00:00:00Z")
    console.sees("No conversation fits.")
    console.press("updated_before: 2020-01-01T00:00:00Z \N{MULTIPLICATION SIGN}")
    console.sees("idle", "completed")
    runs: list[Any] = cluster.http.get("/v1/runs?tag=playground").json()["data"]
    assert [run["status"] for run in runs] == ["completed"]
    console.holds()


def test_below_a_prefix_that_a_proxy_takes_off(cluster: Cluster, chromium: str) -> None:
    run = cluster.submit("echo", "below")
    cluster.ended(run)
    port = free_port()
    below = f"http://127.0.0.1:{port}/agents/palaver"
    with Relay(cluster.stack.url, prefix="/agents/palaver").listening(port), tab_at(below, chromium) as console:
        console.open(f"runs/{run}")
        console.sees("completed", "echo: below")
        console.tab.open(f"{console.url}/")
        console.sees("Runs")
        assert console.tab.evaluate("location.pathname") == "/agents/palaver/console"
        console.holds()
