"""Named points at which a process can be told to fail, for tests that aim. Without PALAVER_FAILPOINTS they do nothing.

    PALAVER_FAILPOINTS="step.settling=kill@3 model.delta=stop%1"

Each is ``point=action``, then ``@n``: at the n-th pass of this process (the first by default), or ``%p``: with this
chance, in percent, at each pass. PALAVER_FAILPOINTS_LEDGER names a file that gets a line for each failure.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Final

from palaver.errors import ConfigurationError

POINTS: Final = frozenset(
    {
        "step.delivered",  # a worker has the message and nothing else
        "step.claimed",  # by a delivery, or in place
        "step.followed",  # in place: it was claimed with what settled the one before, and its task begins
        "model.asking",
        "model.delta",
        "model.answered",
        "tool.starting",
        "tool.effect",  # within a tool: tests' tools pass it
        "tool.done",
        "step.settling",
        "step.settled",  # nothing is published yet, where the store does not do that
        "step.published",  # with others: all of them are on the broker
        "cancel.heard",
        "run.submitted",  # in the API: stored, published at most by the store, no answer yet; so are the next two
        "run.cancelled",
        "run.acted",
        "run.answering",  # to be published at once, no answer yet
        "sweep.found",
        "sweep.settled",  # as above
    }
)

_SPEC: Final = re.compile(r"([a-z.]+)=(kill-group|kill|stop)(?:@(\d+)|%(\d+(?:\.\d+)?))?")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_group() -> None:
    os.killpg(0, signal.SIGKILL)


def _stop() -> None:
    # To this very thread: one that is sent to the process may stop it a moment later.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


_ACTIONS: Final[Mapping[str, Callable[[], None]]] = {"kill": _kill, "kill-group": _kill_group, "stop": _stop}
"""``kill``: this process. ``kill-group``: with those that it belongs to, a whole tools worker. ``stop``: until
SIGCONT."""


class Failpoints:
    """The points that were armed, and how often each was passed."""

    def __init__(self, specs: str = "", ledger: str | None = None) -> None:
        self._armed: dict[str, tuple[str, int, float]] = {}
        self._passes: dict[str, int] = {}
        self.worker = 0
        """The worker that this process is a child of, if that has a group of its own; its other children end with
        it."""
        self.arm(specs, ledger)

    def arm(self, specs: str, ledger: str | None) -> None:
        """Arm these points and no others; the counts of passes start again.

        Raises:
            ConfigurationError: one of ``specs`` is none.
        """
        self._ledger = ledger
        self._armed.clear()
        self._passes.clear()
        for spec in specs.split():
            match = _SPEC.fullmatch(spec)
            if match is None or match[1] not in POINTS:
                raise ConfigurationError(
                    f"PALAVER_FAILPOINTS: {spec!r} is no point=action@n or point=action%p; "
                    f"actions: {', '.join(_ACTIONS)}; points: {', '.join(sorted(POINTS))}"
                )
            self._armed[match[1]] = match[2], int(match[3] or (0 if match[4] else 1)), float(match[4] or 0) / 100

    def __call__(self, point: str) -> None:
        """Pass ``point``; here the process ends or stops if that was asked for."""
        if point not in self._armed:
            return
        action, at, chance = self._armed[point]
        passes = self._passes[point] = self._passes.get(point, 0) + 1
        if passes != at and random.random() >= chance:
            return
        if self._ledger is not None:
            with open(self._ledger, "a") as ledger:
                ledger.write(f"{point} {action} {os.getpid()}\n")
        if action == "kill-group" and self.worker:
            os.kill(self.worker, signal.SIGKILL)
        _ACTIONS[action]()


failpoint: Final = Failpoints(os.environ.get("PALAVER_FAILPOINTS", ""), os.environ.get("PALAVER_FAILPOINTS_LEDGER"))
"""Pass a point. What it costs when nothing is armed is a look into an empty dict."""
