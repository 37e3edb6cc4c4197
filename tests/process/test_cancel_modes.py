"""The three ways to stop a run, one of them after another, how a worker hears of it, and a cancel against the end."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.process.aftermath import cancelled, errors, prompt, replaced, said
from tests.process.cluster import Cluster
from tests.process.inputs import decision
from tests.process.one_more import one_more
from tests.process.phases import EDITOR, FOR_LONG, frozen, in_a_model_call, streaming, wait
from tests.waiting import eventually

pytestmark = pytest.mark.process


def test_gracefully_a_model_call_finishes_and_its_answer_is_kept(cluster: Cluster) -> None:
    run_id = cluster.submit("say-40+rate-20")
    cluster.saw(run_id, "message.delta")
    assert cluster.cancel(run_id, mode="graceful", reason="enough") == 202
    run = cancelled(cluster, run_id)
    assert run.output == " ".join(f"w{i}" for i in range(1, 41))
    assert not cluster.saw(run_id, "message.created", step="1").data["message"]["partial"]
    assert cluster.outcomes(run_id) == ["answered"]
    assert run.usage.output_tokens == 40
    assert run.cancel is not None
    assert (run.cancel.mode, run.cancel.reason) == ("graceful", "enough")
    cluster.goes_on(run_id)


def test_gracefully_calls_that_the_model_asks_for_do_not_begin(cluster: Cluster) -> None:
    with in_a_model_call(cluster, "parallel-2+use-each", tools=["record", "send"]) as run_id:
        assert cluster.cancel(run_id, mode="graceful") == 202
    cancelled(cluster, run_id)
    assert set(errors(cluster, run_id).values()) == {"tool_denied"}
    assert cluster.tool_starts(run_id) == []
    cluster.goes_on(run_id)


def test_gracefully_tools_that_began_finish_and_others_do_not_begin(cluster: Cluster) -> None:
    """Longer than a lease: it must be kept. Six calls on four children."""
    gate = cluster.gate()
    run_id = cluster.submit("parallel-6", gate.text, tools=["record"])
    eventually(lambda: len(cluster.tool_starts(run_id)) == 4)
    assert cluster.cancel(run_id, mode="graceful") == 202
    wait(2.5)
    gate.open()
    run = cancelled(cluster, run_id)
    assert Counter(errors(cluster, run_id).values()) == {"": 4, "tool_denied": 2}
    assert (run.usage.tool_calls, len(cluster.model_calls(run_id))) == (4, 1)
    cluster.goes_on(run_id)


def test_nobody_is_asked_any_more_while_a_graceful_cancel_waits_for_a_tool(cluster: Cluster) -> None:
    text = '[[args {"seconds": 2}]]'
    run_id = cluster.submit("parallel-3+use-each", text, tools=["send", "record"], agent=EDITOR)
    approval, output = cluster.pending(run_id, 2)
    eventually(lambda: cluster.tool_starts(run_id))
    assert cluster.cancel(run_id, mode="graceful") == 202
    assert cluster.run(run_id).pending_actions == ()
    assert cluster.refused(run_id, decision(approval.id)) == (409, "run_ended")
    cancelled(cluster, run_id)
    assert errors(cluster, run_id) == {
        "call_1_1_1": "tool_denied", "call_1_1_2": "", output.call_id: "tool_interrupted",
    }  # fmt: skip
    cluster.goes_on(run_id)


def test_a_stronger_cancel_takes_over_and_a_weaker_one_does_not(cluster: Cluster) -> None:
    """Over a tool that heeds none of them: its process ends, and another one takes its place."""
    cluster.expect_traceback("WorkerLostError")
    run_id = cluster.submit("tool-1", FOR_LONG, tools=["stubborn"])
    (start,) = eventually(lambda: cluster.tool_starts(run_id))
    for mode in ("graceful", "now", "graceful", "rollback", "now"):
        assert cluster.cancel(run_id, mode=mode) == 202, mode
    run = cancelled(cluster, run_id)
    modes = [event.data["mode"] for event in cluster.events(run_id) if event.type == "run.cancelling"]
    assert modes == ["graceful", "now", "rollback"]
    assert run.withdrawn
    assert errors(cluster, run_id) == {"call_1_1_1": "tool_interrupted"}
    assert prompt(cluster, cluster.goes_on(run_id)) == 1
    eventually(lambda: replaced(cluster, start["pid"]))
    # As many children as before, all of them at work.
    many = cluster.ended(cluster.submit("parallel-8", tools=["record"]))
    assert set(errors(cluster, many.id).values()) == {""}


def test_a_stronger_cancel_does_not_wait_for_what_the_weaker_one_lets_finish(cluster: Cluster) -> None:
    run_id = streaming(cluster)
    assert cluster.cancel(run_id, mode="graceful") == 202
    assert cluster.cancel(run_id) in (200, 202)
    cancelled(cluster, run_id)
    assert cluster.outcomes(run_id)[0] == "disconnected"


def test_a_cancel_right_behind_a_pause_keeps_or_withdraws_what_was_shown(cluster: Cluster) -> None:
    """The worker hears of both at once: it lets go for the pause, and finds that the run is cancelled."""
    run_id = streaming(cluster)
    with frozen(cluster, "worker"):
        cluster.pause(run_id, now=True)
        assert cluster.cancel(run_id) == 202
    cancelled(cluster, run_id)
    events = cluster.events(run_id)
    kept = [event for event in events if event.data.get("message", {}).get("partial")]
    assert len(kept) + [event.type for event in events].count("message.discarded") == 1
    cluster.goes_on(run_id)


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_what_was_rolled_back_is_not_told_again(cluster: Cluster, warm: bool) -> None:
    """Two runs of one conversation, the second and then the first; text, calls and results are withdrawn."""
    first = cluster.submit("tool-1+say-400+rate-20", "one", tools=["calculator"])
    conversation = cluster.run(first).conversation_id
    cluster.saw(first, "message.delta")
    second = cluster.submit("tool-1+say-400+rate-20", "two", tools=["calculator"], conversation_id=conversation)
    cluster.cancel(first)
    cluster.saw(second, "message.delta")
    cluster.cancel(second, mode="rollback")
    run = cancelled(cluster, second)
    if not warm:
        cluster.kill("worker")
        cluster.start("worker")
    following = cluster.goes_on(second)
    page = cluster.http.get(f"/v1/conversations/{conversation}/messages").json()["data"]
    assert {each["run_id"] for each in page if each["withdrawn"]} == {second}
    assert prompt(cluster, following) == sum(not each["withdrawn"] for each in page) - 1 == 5
    assert (run.withdrawn, cluster.run(first).withdrawn) == (True, False)
    withdrawn = cluster.saw(second, "messages.withdrawn").data
    inside = [each for each in page if withdrawn["first"] <= each["position"] <= withdrawn["last"]]
    assert inside == [each for each in page if each["withdrawn"]]


def test_rolling_back_what_never_began_withdraws_nothing(cluster: Cluster) -> None:
    ahead = cluster.run(cluster.submit("say-40+rate-20"))
    run_id = cluster.submit("echo", conversation_id=ahead.conversation_id)
    assert cluster.cancel(run_id, mode="rollback") == 200
    assert not cancelled(cluster, run_id).withdrawn
    cluster.ended(ahead.id)
    assert prompt(cluster, cluster.goes_on(run_id)) == 3


@pytest.mark.parametrize("times", [25, pytest.param(50, marks=pytest.mark.chaos)])
def test_many_cancels_against_the_end_of_a_run(cluster: Cluster, times: int) -> None:
    """So many in each of four threads. Each looks for the moment at which the one or the other comes first. Whoever was
    told that the run is cancelled finds it cancelled."""

    def race(_: int) -> Counter[str]:
        ends, ms = Counter[str](), 10.0
        for _ in range(times):
            # A model that answers at once has answered before any cancel can come.
            run_id = cluster.submit("say-2+rate-200")
            wait(ms / 1000)
            answer = cluster.http.post(f"/v1/runs/{run_id}/cancel")
            run = cluster.ended(run_id)
            if answer.status_code == 409:
                assert (run.status, run.cancel) == ("completed", None), run
            else:
                assert answer.status_code in (200, 202)
                assert run.status == "cancelled", run
            ends[run.status] += 1
            ms = max(0.0, ms + (1 if run.status == "cancelled" else -1))
        return ends

    with ThreadPoolExecutor(4) as pool:
        ends = sum(pool.map(race, range(4)), Counter[str]())
    assert ends.total() == 4 * times
    assert min(ends["completed"], ends["cancelled"]) > 0.4 * times, ends


def test_what_was_used_up_to_the_abort_is_recorded(cluster: Cluster) -> None:
    """Two whole answers and one that was cut off, of a provider that says what they cost."""
    run_id = cluster.submit("priced/tool-2+say-400+rate-20", tools=["calculator"])
    cluster.saw(run_id, "message.delta")
    before = cluster.run(run_id).usage
    assert before.model_calls == 2
    assert before.input_tokens > 0
    cluster.cancel(run_id)
    usage = cancelled(cluster, run_id).usage
    assert usage.model_calls == 3
    assert (usage.input_tokens, usage.output_tokens, usage.tool_calls) == (
        before.input_tokens, before.output_tokens, 2,
    )  # fmt: skip
    assert said(cluster, cluster.run(run_id))[-1][1].startswith("w1")


def test_a_worker_hears_of_a_cancel_without_asking(cluster: Cluster) -> None:
    """It asks three times a lease, and a lease takes hours here."""
    with one_more(cluster, "worker", PALAVER_LEASE_SECONDS="86400"):
        cluster.kill("worker")
        for stop in (cluster.cancel, partial(cluster.pause, now=True)):
            run_id = cluster.submit("say-400+rate-20")
            cluster.saw(run_id, "message.delta")
            stop(run_id)
            assert cluster.outcomes(run_id) == ["disconnected"]
        cluster.cancel(run_id)


def test_each_call_of_a_turn_says_truthfully_what_became_of_it(cluster: Cluster) -> None:
    """Six calls on four children: four had begun, two had not. In call order, one result each."""
    run_id = cluster.submit("parallel-6", FOR_LONG, tools=["record"])
    eventually(lambda: len(cluster.tool_starts(run_id)) == 4)
    begun = {start["call"].rpartition(":")[2] for start in cluster.tool_starts(run_id)}
    cluster.cancel(run_id)
    cancelled(cluster, run_id)
    classes = errors(cluster, run_id)
    assert list(classes) == [f"call_1_1_{i}" for i in range(1, 7)]
    assert {call for call, kind in classes.items() if kind == "tool_interrupted"} == begun
    assert list(classes.values()).count("tool_denied") == 2
    cluster.goes_on(run_id)
