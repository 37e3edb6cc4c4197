"""The first example of the page on the SDK is run as it stands there, and shows what the page promises."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from palaver import Palaver
from tests.pages import ROOT, blocks
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.process, pytest.mark.long]


def test_the_first_example_prints_both_answers(cluster: Cluster) -> None:
    example = next(content for kind, content in blocks(ROOT / "docs/reference/sdk.md") if kind == "python")
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=ROOT,
        env={**os.environ, "PALAVER_URL": cluster.stack.url},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, _, streamed = done.stdout.partition("\n")
    assert first.startswith("done: 20 tool results, the last one: ")
    assert streamed.endswith("done: 20 tool results, the last one: 21")
    with Palaver(base_url=cluster.stack.url) as client:
        assert streamed == next(iter(client.list(limit=1))).output
