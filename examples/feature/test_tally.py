"""Against an installation that has the feature, at PALAVER_URL."""

from __future__ import annotations

import os

import httpx

from palaver import Palaver


def test_each_end_is_counted() -> None:
    url = os.environ["PALAVER_URL"]
    before = httpx.get(f"{url}/v1/tally").json()
    with Palaver(url) as client:
        for model in ("echo", "401"):
            client.wait(client.submit("hi", model=f"fake/{model}").id)
    after = httpx.get(f"{url}/v1/tally").json()
    assert f'palaver_tally_runs{{status="failed"}} {after["failed"]}' in httpx.get(f"{url}/metrics").text
    assert {name: after[name] - before.get(name, 0) for name in after} == {"completed": 1, "failed": 1}
