"""Providers of the AI SDK and OpenAI's client for Node.js at a real stack."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.process.cluster import Cluster
from tests.referees.openai_agents import served
from tests.referees.openai_node import PACKAGES
from tests.referees.page import passed, stated

pytestmark = [pytest.mark.process, pytest.mark.chaos]


@pytest.mark.parametrize(("script", "suite"), [("ai_sdk.mjs", "AI SDK's providers"), ("openai.mjs", "openai-node")])
def test_each_case(cluster: Cluster, script: str, suite: str) -> None:
    program = PACKAGES.program()
    shutil.copy(PACKAGES.source / script, program.folder)
    with served(cluster) as url:
        command = [str(program.node), script, url]
        done = subprocess.run(
            command, cwd=program.folder, env=program.environment, capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    failed = {name: why for name, why in found.items() if why is not None}
    assert failed.keys() == stated(suite).keys(), failed
    assert passed(suite) == f"{len(found) - len(failed)} of {len(found)}"


def test_its_packages_are_locked_without_addresses() -> None:
    assert "resolved" not in (PACKAGES.source / "package-lock.json").read_text()
