"""A Redis, a model server and waiting with a deadline, for tests; shipped because users test agents too.

`eventually` and `aeventually` wait for a condition with a deadline, in place of sleeps.
`palaver.testing.model_server` is a scriptable model server; it needs the extra `palaver[testing]`, so
import it by its own name.
"""

from __future__ import annotations

from palaver.testing.waiting import aeventually, eventually

__all__ = ["aeventually", "eventually"]
