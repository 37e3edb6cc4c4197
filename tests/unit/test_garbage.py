"""What a worker loads is not collected while it loads, and is left out of what is collected later."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.pages import ROOT

_LOADING = """
import gc, json
from palaver.processes.garbage import load_uncollected, share_loaded, spare_loaded

load_uncollected()
states = [gc.isenabled()]
loaded = [[] for _ in range(10_000)]
{then}()
states.append(gc.isenabled())
print(json.dumps([states, gc.get_freeze_count() > len(loaded)]))
"""


def _loaded(then: str) -> object:
    found = subprocess.run(
        [sys.executable, "-c", _LOADING.format(then=then)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(found.stdout)


def test_a_process_collects_again_once_it_has_loaded() -> None:
    assert _loaded("spare_loaded") == [[False, True], True]


def test_a_process_that_forks_others_collects_again_and_shares_what_it_has() -> None:
    assert _loaded("share_loaded") == [[False, True], True]
