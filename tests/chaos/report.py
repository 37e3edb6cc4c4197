"""What chaos did and found: each test adds a line to a file, PALAVER_CHAOS_REPORT, if there is one."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from deploy.child import ROOT


def record(
    name: str, *, seed: int, counts: Mapping[str, int], seconds: Sequence[float] = (), violations: int = 0
) -> None:
    """Add one line: how often each kind of fault was made and each outcome came, and times such as recoveries."""
    path = os.environ.get("PALAVER_CHAOS_REPORT")
    if not path:
        return
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    line = {
        "name": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.strip(),
        "python": platform.python_version(),
        "seed": seed,
        "counts": dict(counts),
        "seconds": [round(each, 4) for each in seconds],
        "violations": violations,
    }
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")
