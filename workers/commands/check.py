"""``palaver check``: what this place finds of its Redis, and of the broker's, as its processes do at their start; of
the issuer whose tokens the API takes, and of the hosts of agents' own MCP servers, if there are any; and of tools that
workers have in several versions.

A program of its own, for where a server runs: it has the same addresses, and the same users.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final, get_args

from palaver.cli.text import document, one_line
from palaver.config.brokers import is_redis, user_of
from palaver.config.exits import refusing, run_program
from palaver.config.policy import load_policy
from palaver.config.settings import Settings, settings
from palaver.feature import brought
from palaver.store.server.findings import Finding, Level
from palaver.store.server.needs import Role
from palaver.store.server.preflight import Preflight

from .tool_versions_check import look_at_tool_versions

_STATES: Final[dict[Level, str]] = {"ok": "ok", "warning": "WARNING", "error": "ERROR"}
_WIDTHS: Final = (6, 11, 7)
"""The widths of the columns before the finding: the place, the check and its state."""
_LONGEST: Final = 600


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code, which is 1 if something is wrong."""
    options = _parser().parse_args(arguments)
    with refusing():
        here = settings()
        load_policy(here.policy)
        findings = [
            *Preflight(here, options.role or _role(here)).look(),
            *_of_features(here),
            *_of_mcp_hosts(here),
            *look_at_tool_versions(here),
        ]
    if options.json:
        print(document({"data": [asdict(finding) for finding in findings]}))
    else:
        print(_row("PLACE", "CHECK", "STATE", "FOUND"))
        for finding in findings:
            print(_described(finding))
        if not is_redis(here.deliveries_url):
            print(_row("broker", "", "", "no Redis: not looked at"))
    return 0 if all(finding.level == "ok" for finding in findings) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="palaver check",
        description="Ask the Redis of PALAVER_REDIS_URL, and that of PALAVER_BROKER_URL, whether they keep what they "
        "are given, and whether their user may do what its role has to; and the issuer of PALAVER_OIDC_ISSUER for its "
        "keys; look up the hosts of PALAVER_INLINE_MCP_HOSTS; and name tools that workers "
        "have in several versions. Exits 1 if something is wrong, and 78 if the "
        "settings or the rules of PALAVER_POLICY are.",
    )
    parser.add_argument(
        "--role", choices=get_args(Role), help="whose commands to ask for [that of the user in the address, or worker]"
    )
    parser.add_argument("--json", action="store_true", help="JSON on standard output and nothing else")
    return parser


def _role(here: Settings) -> Role:
    """Return the role of a user of deploy/users.acl."""
    user = user_of(here.store_url)
    named: dict[str, Role] = {f"palaver-{role}": role for role in get_args(Role)}
    return named.get(user, "worker")


def _of_features(here: Settings) -> Sequence[Finding]:
    return [finding for look in brought("checks") for finding in look(here)]


def _of_mcp_hosts(here: Settings) -> Sequence[Finding]:
    if not here.inline_mcp_hosts:
        return ()
    from .mcp_hosts_check import look_at_mcp_hosts

    return (look_at_mcp_hosts(here),)


def _described(finding: Finding) -> str:
    """``store   eviction     WARNING  maxmemory-policy allkeys-lru``, with what it means and what to do below."""
    lines = [_row(finding.place, finding.check, _STATES[finding.level], one_line(finding.found, _LONGEST))]
    if finding.level != "ok":
        lines.append(_row("", "", "", f"It {one_line(finding.said, _LONGEST)}."))
        lines.append(_row("", "", "", f"What to do: {one_line(finding.advice, _LONGEST)}"))
    return "\n".join(lines)


def _row(*cells: str) -> str:
    *before, last = cells
    return "  ".join([*(cell.ljust(width) for cell, width in zip(before, _WIDTHS, strict=True)), last]).rstrip()


if __name__ == "__main__":
    run_program(main)
