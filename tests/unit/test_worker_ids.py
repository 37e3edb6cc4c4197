"""A worker is known by an id that nothing before it had."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.pages import ROOT
from workers.steps.runtime import worker_id


@pytest.mark.process
def test_another_life_has_another_id() -> None:
    """A container that starts again has the same host name, and its process the same id."""
    again = "from workers.steps.runtime import worker_id; print(worker_id('n', 1))"
    found = subprocess.run([sys.executable, "-c", again], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() != worker_id("n", 1) == worker_id("n", 1)
