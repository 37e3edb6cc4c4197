"""A stack that has something for each page of the console to show, and the pages: for looks at all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.process.cluster import Cluster
from tests.process.consoles import serving
from tests.unit.api_world import SECRET_KEY
from tests.waiting import eventually

CALLS: Final = "calls"
"""The tag of the run with calls beside each other."""


@contextmanager
def serving_all(folder: Path) -> Iterator[Cluster]:
    """A stack with the console, and with what is off by default."""
    with serving(
        folder, PALAVER_SECRET_KEY=SECRET_KEY, PALAVER_ARCHIVE_URL=f"sqlite:///{folder}/archive.db"
    ) as cluster:
        yield cluster


def furnish(cluster: Cluster) -> Mapping[str, str]:
    """Put something of each kind there; return the place of each page, by its name."""
    http = cluster.http
    for instructions in ("Be kind.", "Be kind and short."):
        _done(http.put("/v1/agents/support", json={"model": "priced/echo", "instructions": instructions}))
    _done(http.put("/v1/agents/broken", json={"model": "fake/401", "instructions": "Its key is refused."}))
    order = {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "run": {"agent": "support", "input": "Good night?"}}
    _done(http.put("/v1/schedules/nightly", json=order))
    hook = _done(http.post("/v1/webhooks", json={"url": "https://hooks.example.invalid/palaver"}))["id"]
    cases = [{"input": f"Question {number}", "id": f"case-{number}"} for number in range(6)]
    batch = {"name": "release 7", "agents": ["support", "broken"], "items": cases, "complete": True}
    batch_id = _done(http.post("/v1/batches", json=batch))["id"]
    key = _done(http.post("/v1/keys", json={"name": "ci", "scopes": ["runs:submit", "runs:read", "runs:act"]}))["key"]
    own = {"Authorization": f"Bearer {key}"}
    for text in ("Is the release out?", "And now?"):
        asked = {"agent": "support", "input": text}
        _done(http.post("/v1/runs", json=asked, headers=own))
    calls = cluster.submit("priced/parallel-4", "Look at four things", tools=["record"], tags=[CALLS])
    retried = cluster.submit("500-2+say-40", "Try again if you must")
    failed = cluster.submit("401", "This one cannot work")
    for run in (calls, retried, failed):
        cluster.ended(run)
    asks = cluster.submit("tool-1", "May I?", tools=["record"], agent={"approvals": {"require": "always"}})
    cluster.pending(asks)
    eventually(lambda: _done(http.get(f"/v1/batches/{batch_id}"))["state"] == "done")
    conversation = cluster.run(calls).conversation_id
    return {
        "runs": "runs",
        "run": f"runs/{calls}",
        "run-steps": f"runs/{calls}?tab=steps",
        "run-waterfall": f"runs/{retried}?tab=waterfall",
        "run-events": f"runs/{calls}?tab=events",
        "run-failed": f"runs/{failed}",
        "run-waits": f"runs/{asks}",
        "actions": "actions",
        "conversations": "conversations",
        "conversation": f"conversations/{conversation}",
        "playground": "playground",
        "agents": "agents",
        "agent": "agents/support?with=1",
        "schedules": "schedules",
        "schedule": "schedules/nightly",
        "batches": "batches",
        "batch": f"batches/{batch_id}",
        "webhooks": "webhooks",
        "webhook": f"webhooks/{hook}",
        "fleet": "fleet",
        "archive": "archive",
        "tools": "tools",
        "statistics": "statistics",
        "usage": "usage",
        "tenants": "tenants",
        "keys": "keys",
        "audit": "audit",
    }


def _done(answer: Any) -> Any:
    assert answer.status_code < 300, answer.text
    return answer.json()
