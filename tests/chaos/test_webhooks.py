"""Ten thousand events to receivers of every kind, while workers are killed: each is delivered, or there as failed or
pending; none is invented; and whoever answers waits for nobody."""

from __future__ import annotations

import os
import random
import statistics
from pathlib import Path
from typing import Any

import orjson
import pytest
from standardwebhooks import Webhook

from palaver import Palaver
from tests.chaos.report import record
from tests.process.cluster import Cluster
from tests.process.webhook_receivers import Receivers, receivers
from tests.unit.api_world import SECRET_KEY
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

EVENTS = int(os.environ.get("PALAVER_WEBHOOK_EVENTS", "10000"))
HOSTILE = ("late", "never", "500", "410", "redirect", "huge")
KILLS = 8
AT_ONCE = 100


def test_each_event_is_delivered_or_seen_to_have_failed(tmp_path: Path) -> None:
    chance = random.Random(EVENTS)
    with receivers() as heard:
        environment = {"PALAVER_SECRET_KEY": SECRET_KEY, "PALAVER_WEBHOOK_HOSTS": f"127.0.0.1:{heard.port}"}
        processes = {"flower": 0, "tools": 0, "worker": 2}
        with (
            Cluster(tmp_path, environment=environment, processes=processes) as cluster,
            Palaver(cluster.stack.url) as client,
        ):
            good = client.create_webhook(heard.url("ok"))
            alone = latencies(cluster, heard, good.secret, 200)
            hostile = {path: client.create_webhook(heard.url(path)).id for path in HOSTILE}
            beside = latencies(cluster, heard, good.secret, 200)
            runs, killed = told_of(heard, good.secret), 0
            while len(runs) < EVENTS:
                runs |= {cluster.submit("echo") for _ in range(AT_ONCE)}
                if chance.random() < KILLS * AT_ONCE / EVENTS:
                    cluster.kill("worker", chance.randrange(2))
                    cluster.start("worker")
                    killed += 1

            def all_came() -> bool:
                return told_of(heard, good.secret) == runs

            eventually(all_came, within=900, every=2.0, why="each event, at least once")
            events = events_of(heard, good.secret)
            assert {event["type"] for event in events} == {"run.succeeded", "webhook.disabled"}
            doubled = len([event for event in events if event["type"] == "run.succeeded"]) - len(runs)
            eventually(lambda: client.webhook(good.id).pending == 0, within=120)
            shown = client.webhook(good.id)
            assert shown.failed == shown.dropped == 0
            for path, webhook_id in hostile.items():
                check_hostile(client, heard, path, webhook_id, len(runs))
            assert not heard.events("elsewhere"), "a redirect was followed"
            counts = {"events": len(runs), "kills": killed, "doubled": doubled}
            record("webhooks", seed=EVENTS, counts=counts)
            print(counts, "p50, p99 alone", alone, "beside hostile ones", beside)
            assert beside[1] <= 2 * alone[1] + 1.0


def events_of(heard: Receivers, secret: str) -> list[dict[str, Any]]:
    """What came to the good receiver, all of it signed."""
    webhook = Webhook(secret)
    found = []
    for headers, body, _ in heard.events("ok"):
        assert headers["webhook-signature"].startswith("v1,")
        found.append(orjson.loads(body))
    if heard.events("ok"):
        headers, body, _ = heard.events("ok")[-1]
        webhook.verify(body, headers)
    return found


def told_of(heard: Receivers, secret: str) -> set[str]:
    """The runs whose end came to the good receiver."""
    return {event["data"]["run_id"] for event in events_of(heard, secret) if event["type"] == "run.succeeded"}


def latencies(cluster: Cluster, heard: Receivers, secret: str, runs: int) -> tuple[float, float]:
    """Seconds from the end of a run to its event at the good receiver: the middle, and the 99th of a hundred."""
    known = len(heard.events("ok"))
    ids = {cluster.submit("echo") for _ in range(runs)}
    eventually(lambda: ids <= told_of(heard, secret), within=300, every=0.5)
    took = []
    for _, body, at in heard.events("ok")[known:]:
        event = orjson.loads(body)
        if event["data"].get("run_id") in ids:
            ended = cluster.run(event["data"]["run_id"]).times.ended_at
            assert ended is not None
            took.append(at - ended.timestamp())
    return round(statistics.median(took), 3), round(statistics.quantiles(took, n=100)[98], 3)


def check_hostile(client: Palaver, heard: Receivers, path: str, webhook_id: str, runs: int) -> None:
    """All that was for it has a fate that is seen."""
    shown = client.webhook(webhook_id)
    if path == "410":
        assert shown.off_because == "gone"
        assert len(heard.events(path)) <= 1 + KILLS
        return
    seen = shown.pending + shown.delivered + shown.failed + shown.dropped
    assert seen >= runs - 400, (path, shown)
    if path in ("late", "huge"):
        assert shown.delivered
    else:
        assert not shown.delivered
        assert shown.failing_since is not None
    attempts = [attempt for each in client.deliveries(webhook_id) for attempt in each.attempts]
    errors = {attempt.error for attempt in attempts}
    assert errors <= {"never": {"timeout"}, "redirect": {"redirect"}}.get(path, {None, "connection", "timeout"}), errors
    assert all(len(attempt.answer) <= 1024 for attempt in attempts)
