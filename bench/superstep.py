"""The pattern of microsoft/agent-framework#3938 by its description: a checkpoint after each superstep, and whole agent
turns in one. ``python -m bench.superstep CHECKPOINT ORDER [KEY]`` runs it, or resumes it from its checkpoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.bank import pay


def supersteps(order: str, key: str) -> Sequence[Callable[[], object]]:
    """One executor decides, and the next one is an agent that calls its tools in one turn."""
    return [lambda: f"refund {order}", lambda: [pay(order, key), f"the customer of {order} is told"]]


def main(checkpoint: Path, order: str, key: str = "") -> None:
    """Go on behind the last superstep that was checkpointed."""
    done = json.loads(checkpoint.read_text()) if checkpoint.exists() else []
    for superstep in supersteps(order, key)[len(done) :]:
        done.append(superstep())
        checkpoint.write_text(json.dumps(done))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
