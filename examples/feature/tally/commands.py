"""``palaver tally show``."""

from __future__ import annotations

import httpx

from palaver.cli.commands import CommandGroup
from palaver.cli.connection import Api


def show(api: Api) -> None:
    """Show how runs ended."""
    url, key = api.url or "http://127.0.0.1:8080", {"Authorization": f"Bearer {api.api_key}"}
    told = httpx.get(f"{url}/v1/tally", headers=key)
    api.show(told.raise_for_status().json(), told.text)


COMMANDS = (CommandGroup("tally", "Count how runs ended.", {"show": show}),)
