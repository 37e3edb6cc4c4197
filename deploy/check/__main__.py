"""`python -m deploy.check`: every check of the deploy kit; exits with 1 if one finds a fault.

`python -m deploy.check chart names` makes only those. What cannot be checked on this machine is said loudly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from .chart import charts
from .files import compose, dockerfile, units
from .kit import Kit, made
from .monitoring import alerts, dashboard, promtool
from .names import names
from .one_machine import serve
from .restarts import restarts
from .roles import roles

CHECKS: Final[Mapping[str, Callable[[Kit], list[str]]]] = {
    "image": dockerfile,
    "compose": compose,
    "systemd": units,
    "chart": charts,
    "names": names,
    "restarts": restarts,
    "dashboard": dashboard,
    "alerts": alerts,
    "promtool": promtool,
    "roles": roles,
    "serve": serve,
}


def main() -> None:
    """Make the checks that the command line names, or all of them."""
    wanted = sys.argv[1:] or [*CHECKS]
    if unknown := [name for name in wanted if name not in CHECKS]:
        sys.exit(f"no such check: {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    faulty = False
    for name in wanted:
        faulty |= not made(name, partial(CHECKS[name], Kit()))
    sys.exit(faulty)


if __name__ == "__main__":
    main()
