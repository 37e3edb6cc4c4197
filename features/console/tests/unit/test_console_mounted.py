"""The console below a path of another application: its files are found there, and are the same for everybody."""

from __future__ import annotations

import re

from api.app.installed import dialects_of
from tests.unit.mounted_site import site


async def test_its_files_are_below_the_mount() -> None:
    async with site(path="/inner/agents", dialects=dialects_of((), console=True)) as shop:
        index = await shop.client.get("/inner/agents/console")
        assert index.status_code == 200
        names = re.findall('(?:href|src)="([^":]+)"', index.text)
        assert len(names) >= 3
        for name in names:
            assert (await shop.client.get(f"/inner/agents/{name}")).status_code == 200, name
        lead = await shop.client.get("/inner/agents/console/runs/run_1")
        assert str(lead.url.join(lead.headers["location"])).endswith("/inner/agents/console#/runs/run_1")
