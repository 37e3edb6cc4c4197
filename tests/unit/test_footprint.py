"""What each process of a server must not import: it would have it in memory for as long as it lives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import pytest

from tests.pages import ROOT
from tests.waiting import PATIENCE

pytestmark = pytest.mark.process

_CELERY: Final = "import workers.__main__, celery.bin.worker, celery.apps.worker, celery.worker.consumer"
PROGRAMS: Final[Mapping[str, str]] = {
    "up": """
import features.stack.up, features.stack.plan
features.stack.up.model_to_try(None)
features.stack.plan._provider()""",
    "serve": "import features.stack.serving",
    "role": "import palaver.cli",
    "api": "import api.serving",
    "worker asking": f"{_CELERY}, workers.app\nimport sys; print(*sys.modules)\nworkers.models.late_port.load()",
    "flower": "import workers.__main__, flower.command, workers.broker.celery_app",
}
"""What imports what a program does until it serves. A model worker that asks a model imports what any worker does, and
more: one interpreter says what there is after each, in a line."""
_OF_A_PARENT: Final = {"celery", "httpx", "kombu", "palaver.schemas.models", "redis", "rich"}
"""What the parent of a stack has no use for."""
_OF_TERMINALS: Final = {"prompt_toolkit", "typer"}
_UNASKED: Final = {
    *("cryptography.hazmat", "jsonschema_rs", "jwt", "features.oidc.issuer"),
    *("palaver.store.redis.cluster", "palaver.store.redis.sentinel"),
}
"""What comes with a key, with the first schema, with the first token, with an issuer, with a cluster, with Sentinels.
"""
_OF_THE_API: Final = {
    *("palaver.events.classes", "palaver.store.access.api_keys", "palaver.store.agents.agents"),
    *("palaver.store.fleet.measuring", "palaver.store.reading.feeds", "palaver.store.runs.control"),
    *("palaver.store.scripting.contracts.core", "palaver.store.tenants.tenants"),
    *("palaver.schemas.filters", "palaver.store.conversations.conversations", "palaver.store.reading.reading"),
    *("palaver.store.runs.children", "palaver.store.runs.runs"),
}
"""What no worker asks the store for, and what watchers read."""
_OF_SERVERS: Final = {*_OF_TERMINALS, *_UNASKED, "flower", "opentelemetry", "rich", "tornado"}
NEEDLESS: Final[Mapping[str, set[str]]] = {
    "up": {*_OF_TERMINALS, *_UNASKED, *_OF_A_PARENT},
    "serve": {*_OF_TERMINALS, *_UNASKED, *_OF_A_PARENT, "api", "palaver.config.settings", "workers"},
    "role": {*_OF_TERMINALS, *_UNASKED, "argparse", "html", "logging", "pydantic", "redis"},
    "api": {*_OF_SERVERS, "aiohttp", "celery", "fastapi", "httpx", "palaver.tools.builtin", "workers"},
    "worker": {*_OF_SERVERS, *_OF_THE_API, "aiohttp", "api", "httpx", "pygments"},
    "asking": {*_OF_SERVERS, *_OF_THE_API, "api", "pygments"},
    "flower": {*_OF_TERMINALS, *_UNASKED, "aiohttp", "api", "httpx", "workers.app"},
}


@pytest.mark.parametrize("roles", PROGRAMS)
def test_it_imports_nothing_needless(roles: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    done = subprocess.run(
        [sys.executable, "-c", f"{PROGRAMS[roles]}\nimport sys\nprint(*sys.modules)"],
        cwd=ROOT,
        env={**clean, "PALAVER_REDIS_URL": "redis://127.0.0.1:1/0"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    for role, modules in zip(roles.split(), done.stdout.splitlines(), strict=True):
        assert not NEEDLESS[role].intersection(modules.split()), role


def test_a_worker_that_is_loaded_has_written_methods_of_few_classes() -> None:
    program = """
import workers.app, gc, dataclasses
from palaver.late import _Fields
ours = ("palaver.", "workers.", "features.")
found = [each for each in gc.get_objects() if isinstance(each, type) and each.__module__.startswith(ours)]
fields = [vars(each)["__dataclass_fields__"] for each in found if "__dataclass_fields__" in vars(each)]
waiting = sum(isinstance(each, _Fields) for each in fields)
print(len(fields) - waiting, waiting)
"""
    environment = {**os.environ, "PALAVER_REDIS_URL": "redis://127.0.0.1:1/0"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    written, waiting = map(int, done.stdout.split())
    assert written < waiting / 3, (written, waiting)


def test_an_application_is_made_without_what_checks_models() -> None:
    program = (
        "import api.serving, api.app, api.native.control, palaver.schemas.models as m\n"
        "api.app.create_app()\n"
        "models = m.AgentSpec, m.Message, m.Submission, m.Run, api.native.control.Retry\n"
        "print([model.__name__ for model in models if model.__pydantic_complete__])"
    )
    environment = {**os.environ, "PALAVER_REDIS_URL": "redis://127.0.0.1:1/0"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_an_api_that_is_up_builds_what_its_first_run_needs_in_many_turns_of_its_loop() -> None:
    program = """
import asyncio
import palaver.schemas.models as m
from api.app.preparing import prepare_first_run
from palaver.config.settings import settings
from palaver.store import Store
from palaver.store.scripting.assembly import Assembler

turns, made, script = 0, [], Assembler.script
Assembler.script = lambda self, of: made.append(of.name) or script(self, of)

def count():
    global turns
    turns += 1
    asyncio.get_running_loop().call_soon(count)

async def main():
    store = Store.connect(settings())
    count()
    await prepare_first_run(store)
    models = m.AgentSpec, m.Message, m.Submission, m.Run
    print(all(model.__pydantic_complete__ for model in models), made == ["submit"], turns > 30)

asyncio.run(main())
"""
    environment = {**os.environ, "PALAVER_REDIS_URL": "redis://127.0.0.1:1/0"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.split() == ["True", "True", "True"], done.stderr
