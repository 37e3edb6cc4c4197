"""Versions of OpenAI's client at a real stack, loose and strict: ``make check-openai`` installs them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.openai_clients.install import HERE, VERSIONS, folder
from tests.process.cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.chaos]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_does_all_of_it(cluster: Cluster, version: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(folder(version))}
    url = f"{cluster.stack.url}/openai/v1"
    done = subprocess.run(
        [sys.executable, str(HERE / "driver.py"), url], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, version), done.stderr[-4000:]
