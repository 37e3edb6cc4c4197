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

_LOADING_AHEAD = """
import gc, json, sys
from palaver.processes.garbage import spare_loaded
from workers.models.late_port import load_ahead

spare_loaded()
before, thresholds = gc.get_freeze_count(), gc.get_threshold()
load_ahead()
print(json.dumps(["httpx" in sys.modules, gc.isenabled(), gc.get_threshold() == thresholds,
    gc.get_freeze_count() - before > 10_000, len(gc.get_objects()) < 5_000]))
"""


def _told(program: str) -> object:
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(found.stdout)


def _loaded(then: str) -> object:
    return _told(_LOADING.format(then=then))


def test_a_process_collects_again_once_it_has_loaded() -> None:
    assert _loaded("spare_loaded") == [[False, True], True]


def test_what_calls_models_is_spared_though_it_is_loaded_later() -> None:
    assert _told(_LOADING_AHEAD) == [True] * 5


def test_a_process_that_forks_others_collects_again_and_shares_what_it_has() -> None:
    assert _loaded("share_loaded") == [[False, True], True]
