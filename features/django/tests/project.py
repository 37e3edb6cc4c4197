"""A project with Palaver, in the process of a test: Django's users and sessions on SQLite in memory. Import it first:
Django is set up by that."""

from __future__ import annotations

from typing import Any, Final

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test.utils import setup_test_environment

SITE: Final = "features.django.tests.site"
DATABASE: Final = "file:palaver?mode=memory&cache=shared"
"""Each thread has a connection of its own to it."""


def _set_up() -> None:
    settings.configure(
        ALLOWED_HOSTS=["testserver"],
        AUTH_PASSWORD_VALIDATORS=[],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE}},
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "palaver.contrib.django",
            "features.django.tests.desk",
        ],
        LOGGING_CONFIG=None,
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        ROOT_URLCONF=SITE,
        SECRET_KEY="of tests",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        USE_TZ=True,
    )
    django.setup()
    setup_test_environment()


def make_tables() -> None:
    """Have the tables of all applications, once in a process."""
    if "auth_user" not in connection.introspection.table_names():
        call_command("migrate", verbosity=0)


def user(name: str, **more: Any) -> Any:
    """Return the user of this name, who is made once."""
    from django.contrib.auth.models import User

    found, _ = User.objects.update_or_create(username=name, defaults=more)
    return found


if not settings.configured:
    _set_up()
