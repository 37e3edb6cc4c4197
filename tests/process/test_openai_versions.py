"""Versions of OpenAI's client at a real stack, loose and strict, and its client for Node.js: ``make check-openai``
installs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.openai_clients.install import HERE, VERSIONS, folder
from tests.process.cluster import Cluster
from tests.process.node import installed
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.process, pytest.mark.chaos]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_does_all_of_it(cluster: Cluster, version: str) -> None:
    if not folder(version).exists():
        pytest.skip("OPENAI'S OLDER CLIENTS ARE NOT TESTED: make check-openai installs them")
    environment = {**os.environ, "PYTHONPATH": str(folder(version))}
    url = f"{cluster.stack.url}/openai/v1"
    done = subprocess.run(
        [sys.executable, str(HERE / "driver.py"), url],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout.strip()) == (0, version), done.stderr[-4000:]


def test_the_client_for_node_does_all_of_it(cluster: Cluster, tmp_path: Path) -> None:
    source = HERE / "node"
    program = installed(source, tmp_path, "OPENAI'S CLIENT FOR NODE.JS")
    command = [str(program.node), "driver.mjs", f"{cluster.stack.url}/openai/v1"]
    done = subprocess.run(
        command, cwd=tmp_path, env=program.environment, capture_output=True, text=True, timeout=PATIENCE
    )
    version = json.loads((source / "package.json").read_text())["devDependencies"]["openai"]
    assert (done.returncode, done.stdout.strip()) == (0, version), done.stderr[-4000:]
