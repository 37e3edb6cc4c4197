"""An application of a project is read in a process of its own: what it tells, and what nothing of it does here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, current_app
from kombu.connection import Connection

from features.celery_source import project
from features.celery_source.applications import Application, Order
from features.celery_source.tables import CelerySection, TaskTable
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.secrets.redaction import redact
from tests.pages import ROOT
from tests.unit.declared_tools import tools_of_file
from workers.own_celery import OwnCelery
from workers.sources.guests import declared_sources

_MARK = """
import os
settings = None
with open(os.environ["MARK"], "a") as mark:
    mark.write(f"{os.getpid()} ")
"""
_PROJECT = {
    # As much of Django as Celery asks for. Who imports its settings, or the project, leaves a mark.
    "django": "VERSION = (5, 2)\ndef setup(): pass",
    "django/conf": _MARK,
    "django/db": "transaction = None\nclass DatabaseError(Exception): pass",
    "django/db/utils": "class InterfaceError(Exception): pass",
    "django/core": "",
    "django/core/cache": "",
    "django/core/checks": "def run_checks(): pass",
    "desk": _MARK,
    "desk/settings": "",
}
_APP = """
import logging, os, ssl, sys, threading
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "desk.settings")
import django
from celery import Celery
from kombu import Exchange, Queue

print("noise " * 50_000)
print("noise " * 50_000, file=sys.stderr)
logging.disable()
threading.Thread(target=threading.Event().wait).start()
app = Celery("desk", broker="memory://u:s3cret-of-desk@host/1", backend="cache+memory://")


def of_name(name, args, kwargs, options, task=None, **_):
    if name == "desk.rout":
        return {"queue": "routed", "priority": 7}
    if name == "desk.lost":
        raise KeyError("no such tenant")


app.conf.update(
    task_routes=(of_name, {"desk.pay": {"queue": "pay"}}),
    task_queues=[Queue("celery"), Queue("pay", Exchange("money", "topic"), routing_key="money.pay", max_priority=9)],
    task_queue_max_priority=10,
    broker_transport_options={
        "global_keyprefix": "desk:",
        "visibility_timeout": timedelta(hours=1),
        "socket_keepalive_options": {4: 60},
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
        "ca": Path("/ca.pem"),
        "callback": of_name,
    },
    result_expires=timedelta(days=1),
)


@app.task(name="desk.pay", time_limit=9)
def pay(order: str, cents: int = 100) -> str:
    \"\"\"Pay an order back.\"\"\"


@app.task(name="desk.rout")
def rout(order: str) -> str:
    \"\"\"Has a route.\"\"\"


@app.task(name="desk.own", queue="own")
def own(order: str) -> str:
    \"\"\"Has a queue.\"\"\"


@app.task(name="desk.lost")
def lost(order: str) -> str:
    \"\"\"Its router raises.\"\"\"


@app.task(name="desk.untyped")
def untyped(order):
    \"\"\"Has no types.\"\"\"
"""
_FILE = """
[celery.desk]
app = "desk.celery:app"

[celery.desk.tasks.pay]
task = "desk.pay"

[celery.desk.tasks.rout]
task = "desk.rout"
description = "Another one."

[celery.desk.tasks.own]
task = "desk.own"

[celery.desk.tasks.asked]
task = "desk.own"
queue = "pay"
parameters.properties = { order = { type = "string" } }
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project that uses a Django, with the mark that this leaves where it is imported."""
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in _PROJECT.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    (tmp_path / "desk" / "celery.py").write_text(_APP)
    return tmp_path


def _marks(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "mark").read_text().split()]


async def test_a_project_is_imported_by_another_process_with_settings_of_its_own(
    desk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before, known = dict(os.environ), set(sys.modules)
    async with tools_of_file(desk, _FILE):
        pass
    # As in a child of the worker.
    async with tools_of_file(desk, _FILE) as tools:
        declared = {name: tools[name] for name in ("pay", "rout", "own", "asked")}
    assert (declared["pay"].description, declared["pay"].parameters["required"]) == ("Pay an order back.", ["order"])
    assert declared["pay"].parameters["properties"]["cents"] == {"type": "integer", "default": 100}
    assert declared["rout"].description == "Another one."
    assert len(set(_marks(desk))) == 1, "it is imported once"
    assert os.getpid() not in _marks(desk)
    assert not {"django.conf", "desk", "desk.celery"} & (set(sys.modules) - known)
    assert os.environ == before
    assert current_app.main != "desk"
    assert "settings that are code of the project have no effect here: broker_transport_options.callback" in caplog.text


def test_its_tasks_are_sent_as_it_would_send_them(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the settings, the queues and the routes that it tells: those of its tasks and of its router."""
    sent: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(Celery, "send_task", lambda _, name, **options: sent.append((name, options)))
    monkeypatch.setattr(Application, "_opened", lambda _: _Unmarked())
    tables = {
        "pay": TaskTable(task="desk.pay"),
        "rout": TaskTable(task="desk.rout"),
        "own": TaskTable(task="desk.own"),
        "asked": TaskTable(task="desk.own", queue="pay"),
    }
    application = Application("desk", CelerySection(app="desk.celery:app", tasks=tables))
    for name, table in tables.items():
        application.send(Order.of("run_1", name, table, {}, 5))
    pay, rout, own, asked = (options["router"].route(options) for _, options in sent)
    queue = pay["queue"]
    assert (queue.name, queue.exchange.name, queue.exchange.type) == ("pay", "money", "topic")
    assert (queue.routing_key, queue.max_priority, pay["time_limit"]) == ("money.pay", 9, 9)
    assert (rout["queue"].name, rout["queue"].queue_arguments, rout["priority"]) == (
        "routed",
        {"x-max-priority": 10},
        7,
    )
    assert [each["queue"].name for each in (own, asked)] == ["own", "pay"]
    conf = application._app.conf
    assert conf.broker_transport_options == {
        "global_keyprefix": "desk:",
        "visibility_timeout": 3600.0,
        "socket_keepalive_options": {4: 60},
        "ssl_cert_reqs": 2,
        "ca": "/ca.pem",
    }
    assert (conf.broker_url, type(application._app.backend).__name__) == (
        "memory://u:s3cret-of-desk@host/1",
        "CacheBackend",
    )
    assert "s3cret-of-desk" not in redact("to s3cret-of-desk")


class _Unmarked:
    """Reports that know of no task."""

    def mark(self, task_id: str) -> bool:
        return True

    def add(self, task_id: str, state: str) -> None:
        return


_NOT_HERE = "import django_that_is_not_here"
_WAYS = "or name its broker with broker_env in the place of app, and give each task parameters"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "import django_that_is_not_here",
            "PALAVER_TOOL_SOURCES: celery.x: cannot import a_desk:app: No module named 'django_that_is_not_here'; "
            "install it here, with what it imports and the variables of its settings, or name its broker with "
            "broker_env in the place of app, and give each task parameters",
        ),
        ("app = 1", "a_desk:app is no Celery application"),
        ("import sys; sys.exit('no ' + 'x' * 100_000)", "cannot import a_desk:app: SystemExit: no " + "x" * 900),
        ("import os; os._exit(3)", "process ended with status 3; see what it says, with `python -c 'import a_desk'`"),
    ],
)
async def test_a_project_that_cannot_be_imported_is_a_sentence(desk: Path, code: str, said: str) -> None:
    (desk / "a_desk.py").write_text(code)
    with pytest.raises(ConfigurationError) as refused:
        await tools_of_file(desk, '[celery.x]\napp = "a_desk:app"\ntasks.x = {}').__aenter__()
    assert said in str(refused.value)
    assert len(str(refused.value)) < 1_500


def test_one_that_is_not_imported_in_time_is_ended_with_what_it_started(
    desk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(project, "_SOON", 0.1)
    monkeypatch.setattr(project, "_SECONDS", 3)
    (desk / "a_desk.py").write_text("import subprocess; subprocess.run(['sleep', '1000'])")
    with pytest.raises(project.Unread, match=r"a_desk:app was not imported within 3 s; see what it waits for"):
        project.read("a_desk:app", [])
    assert "waiting for a_desk:app to be imported, by process" in caplog.text


def test_a_task_that_cannot_be_sent_from_here_is_a_sentence(desk: Path) -> None:
    with (desk / "desk" / "celery.py").open("a") as code:
        code.write("\npay.serializer = 'own'")
    names = {"untyped": "desk.untyped", "lost": "desk.lost", "pay": "desk.pay", "none": "desk.none"}
    tables = {name: TaskTable(task=task) for name, task in names.items()}
    application = Application("desk", CelerySection(app="desk.celery:app", tasks=tables))
    for name, said in {
        "untyped": "tool untyped: parameter order needs a type annotation: give parameters",
        "lost": "its route is not known: KeyError: 'no such tenant'",
        "pay": "it is sent as 'own', which only the project can write: let it take JSON, by task_serializer",
        "none": "the application has no task 'desk.none'",
    }.items():
        with pytest.raises(ConfigurationError) as refused:
            application.declaration(name, tables[name])
        assert str(refused.value) == f"PALAVER_TOOL_SOURCES: celery.desk.tasks.{name}: {said}"


async def test_results_that_only_the_project_can_read_are_said(desk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As those in a database of Django's are."""
    with (desk / "desk" / "celery.py").open("a") as code:
        code.write(
            "\nfrom celery.backends.cache import CacheBackend\n"
            "class OfDjango(CacheBackend): pass\n"
            "app.backend_cls = 'desk.celery:OfDjango+memory://'\napp.conf.result_backend = 'django-db'\n"
            "app._local.backend = app._backend_cache = OfDjango(app, backend='memory')\n"
        )
    section = CelerySection(app="desk.celery:app", tasks={"pay": TaskTable(task="desk.pay")})
    application = Application("desk", section)
    assert not application._backend_there
    assert "have no effect here: broker_transport_options.callback, result_backend" in caplog.text


async def test_check_says_it(desk: Path) -> None:
    file = desk / "tools.toml"
    file.write_text('[celery.desk]\napp = "desk.celery:app"\ntasks.x = {}')
    (declared,) = declared_sources(file)
    (found,) = [each async for each in declared.guest.check(Settings(tool_sources=file), declared.sections)]
    assert found.found == "PALAVER_TOOL_SOURCES: celery.desk.tasks.x: the application has no task 'x'."
    assert found.advice == "Look at the table."


OF_OTHERS = {
    "CELERY_BROKER_URL": "memory://of-a-project",
    "CELERY_BROKER_READ_URL": "memory://of-a-project",
    "CELERY_BROKER_WRITE_URL": "memory://of-a-project",
    "CELERY_RESULT_BACKEND": "cache+memory://",
    "CELERY_CONFIG_MODULE": "a_config",
    "CELERY_LOADER": "a_config:Loader",
    "DJANGO_SETTINGS_MODULE": "desk.settings",
}


@pytest.mark.parametrize("open_", [lambda app: app.connection(), lambda app: app.connection_for_read()])
def test_variables_of_a_project_have_no_effect_on_our_own_applications(
    desk: Path, monkeypatch: pytest.MonkeyPatch, open_: Callable[[Celery], Connection]
) -> None:
    """Neither on the deliveries of workers and Flower, nor on a table that names a broker."""
    (desk / "a_config.py").write_text("import desk\ntask_serializer = 'yaml'")
    for name, value in OF_OTHERS.items():
        monkeypatch.setenv(name, value)
    app = OwnCelery("ours", {"broker_url": "memory://ours"}, set_as_current=False)
    for connection in (open_(app), app.connection_for_write(), app.connection_for_write("memory://ours")):
        assert connection.hostname == "ours"
    assert (type(app.backend).__name__, app.conf.task_serializer) == ("DisabledBackend", "json")
    table = TaskTable(parameters={"type": "object"})
    named = Application("named", CelerySection(broker="memory://named", tasks={"x": table}))
    assert named._app.connection_for_write().hostname == "named"
    assert not (desk / "mark").exists()


def test_the_application_of_workers_and_of_flower_is_such_a_one(desk: Path) -> None:
    ask = (
        "import warnings; warnings.simplefilter('error')\n"
        "from workers.broker.celery_app import app; print(app.connection_for_read().port, app.conf.task_serializer)"
    )
    (desk / "a_config.py").write_text("import desk\ntask_serializer = 'yaml'")
    environment = {**os.environ, **OF_OTHERS, "PALAVER_REDIS_URL": "redis://127.0.0.1:7/0", "PYTHONPATH": str(desk)}
    told = subprocess.run(
        [sys.executable, "-c", ask],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (told.stdout, told.stderr) == ("7 json\n", "")
    assert not (desk / "mark").exists()
