"""The settings of the project."""

from __future__ import annotations

import json
import os
from pathlib import Path

BASE_DIR = Path(__file__).parents[1]
SECRET_KEY = os.environ.get("DESK_SECRET", "for a try")
DEBUG, TIME_ZONE = True, "UTC"
ALLOWED_HOSTS = ["127.0.0.1"]
CONTRIB = ("admin", "auth", "contenttypes", "messages", "sessions")
INSTALLED_APPS = [*(f"django.contrib.{each}" for each in CONTRIB), "palaver.contrib.django", "desk"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ROOT_URLCONF = "desk.views"
LOGIN_URL = LOGIN_REDIRECT_URL = "/"
IN_PAGES = ("template.context_processors.request", "contrib.auth.context_processors.auth")
IN_PAGES = [f"django.{each}" for each in (*IN_PAGES, "contrib.messages.context_processors.messages")]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
TEMPLATES[0]["OPTIONS"] = {"context_processors": IN_PAGES}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "desk.db"}
DATABASES = {"default": json.loads(os.environ.get("DESK_DATABASE", "{}")) or SQLITE}

# Where Redis and the models are, the environment says: PALAVER_REDIS_URL, PALAVER_PROVIDERS.
PALAVER = {"IDENTITY": "desk.views.who", "WEBHOOKS": BASE_DIR / "webhooks.toml"}
