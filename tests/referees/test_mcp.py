"""The conformance suite of the Model Context Protocol, at a real stack and at our client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.pages import ROOT
from tests.process.cluster import Cluster
from tests.referees.mcp import SUITE
from tests.referees.mcp.offering import offered
from tests.referees.page import passed, stated

pytestmark = [pytest.mark.process, pytest.mark.chaos]

REVISIONS: Final = ("2026-07-28", "2025-11-25")
CLIENT: Final = {
    "2026-07-28": (
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
    ),
    "2025-11-25": (
        "initialize",
        "tools_call",
        "sse-retry",
        "elicitation-sep1034-client-defaults",
        "json-schema-2020-12-preservation",
    ),
}
"""The scenarios for clients, without those in which a person logs in at an authorization server."""
_PROGRAM: Final = Path("node_modules") / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
_TIME: Final = re.compile(r"-\d{4}-\d{2}-\d{2}T[\d-]+Z$")


def _suite(arguments: Sequence[str], results: Path) -> dict[str, list[Mapping[str, Any]]]:
    """Run the suite; return what it found in each scenario."""
    program = SUITE.program()
    command = [str(program.node), str(program.folder / _PROGRAM), *arguments, "--output-dir", str(results)]
    done = subprocess.run(command, cwd=ROOT, env=program.environment, capture_output=True, text=True, timeout=240)
    found = {
        _TIME.sub("", each.parent.name).removeprefix("server-"): json.loads(each.read_text())
        for each in results.glob("*/checks.json")
    }
    assert found, done.stdout + done.stderr
    return found


def _failed(found: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, str]:
    """The checks that did not pass, with the suite's words."""
    return {
        scenario if check["id"] == scenario else f"{scenario}:{check['id']}": str(check.get("errorMessage"))
        for scenario, checks in found.items()
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    }


def _well(found: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    whole = sum(all(check["status"] != "FAILURE" for check in checks) for checks in found.values())
    return f"{whole} of {len(found)}"


@pytest.mark.parametrize("revision", REVISIONS)
def test_our_server(cluster: Cluster, tmp_path: Path, revision: str) -> None:
    with offered(cluster, tmp_path) as url:
        found = _suite(["server", "--url", url, "--requirements", revision], tmp_path / "results")
    failed = _failed(found)
    assert failed.keys() == stated(f"MCP {revision}, server").keys(), failed
    assert passed(f"MCP {revision}, server") == _well(found)


@pytest.mark.parametrize("revision", REVISIONS)
def test_our_client(tmp_path: Path, revision: str) -> None:
    client = f"{sys.executable} -m tests.referees.mcp.client"
    found: dict[str, list[Mapping[str, Any]]] = {}
    for scenario in CLIENT[revision]:
        asked = ["client", "--command", client, "--scenario", scenario, "--spec-version", revision]
        found |= _suite(asked, tmp_path / scenario)
    failed = _failed(found)
    assert failed.keys() == stated(f"MCP {revision}, client").keys(), failed
    assert passed(f"MCP {revision}, client") == _well(found)


def test_its_packages_are_locked_without_addresses() -> None:
    assert "resolved" not in (SUITE.source / "package-lock.json").read_text()
