"""All of the desk: ``python examples/django/start.py``, then open what it prints. A deployment has these processes by
itself: ``manage.py palaver worker`` and ``… tools``, a worker of Celery, and a server of ASGI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import django
import uvicorn
from django.contrib.auth import get_user_model
from django.core.management import call_command

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent)]
from serve import HOST, ORIGIN, PORT, a_palaver, expect_free  # noqa: E402  # of the examples

if __name__ == "__main__":
    expect_free(PORT, "PAGE_PORT")
    data, redis = Path(os.environ.get("PALAVER_DATA_DIR", ".palaver")), os.environ.get("PALAVER_REDIS_PORT", "6390")
    data.mkdir(exist_ok=True)
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(data / "desk.db")}
    os.environ |= {"DJANGO_SETTINGS_MODULE": "desk.settings", "PYTHONPATH": str(HERE)}
    os.environ |= {"DESK_DATABASE": json.dumps(database), "DESK_BROKER_URL": f"redis://{HOST}:{redis}/1"}
    os.environ |= {"PALAVER_TOOLS": "palaver.contrib.django.tools", "PALAVER_WEBHOOKS": str(HERE / "webhooks.toml")}
    os.environ["PALAVER_ARCHIVE_URL"] = f"sqlite:///{data}/archive.db"
    django.setup()
    call_command("migrate", verbosity=0)
    call_command("migrate", run_syncdb=True, verbosity=0)
    for name in ("ann", "bob"):
        get_user_model().objects.get_or_create(username=name, is_staff=True, is_superuser=True)
    with a_palaver():
        os.environ |= {"PALAVER_REDIS_URL": f"redis://{HOST}:{redis}/0", "PALAVER_PROVIDERS": f"{data}/providers.toml"}
        celery = subprocess.Popen([sys.executable, "-m", "celery", "-A", "desk:celery", "worker", "-c", "1"])
        print(f"open {ORIGIN}", flush=True)
        uvicorn.run("desk.asgi:application", host=HOST, port=PORT, log_level="warning")
        celery.terminate()
        celery.wait()
