"""LangChain's own tests of chat models, at a real stack."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest
from anyio.from_thread import start_blocking_portal

from tests.process.cluster import Cluster
from tests.referees.openai_agents import served
from tests.referees.openai_python import PACKAGES
from tests.referees.page import passed, stated
from tests.referees.steering import steering

pytestmark = [pytest.mark.process, pytest.mark.chaos]

# Its client keeps connections from one case to the next: so has the loop to be one.
_OPTIONS: Final = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session", "--durations=15")
_SUITES: Final = {
    "TestChatCompletions": "langchain-tests, chat completions",
    "TestResponses": "langchain-tests, Responses",
}


def test_each_case(cluster: Cluster, tmp_path: Path) -> None:
    python = PACKAGES.python()
    # Away from here, it knows no settings of ours.
    shutil.copy(PACKAGES.source / "langchain_models.py", tmp_path)
    report = tmp_path / "report.xml"
    command = [python, "-m", "pytest", "langchain_models.py", "--junit-xml", str(report), *_OPTIONS]
    with (
        served(cluster) as url,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(steering(cluster.stack.model_url, cluster.busy_port)),
    ):
        environment = {**os.environ, "OPENAI_BASE_URL": url}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert report.exists(), done.stdout + done.stderr
    for name, suite in _SUITES.items():
        its = [case for case in ElementTree.parse(report).iter("testcase") if str(case.get("classname")).endswith(name)]
        ran = [case for case in its if case.find("skipped") is None]
        failed = {str(case.get("name")) for case in ran if {part.tag for part in case} & {"failure", "error"}}
        assert failed == stated(suite).keys(), done.stdout
        assert passed(suite) == f"{len(ran) - len(failed)} of {len(ran)}"
