"""The commands of the project: ``python examples/django/manage.py palaver check``, and those of Django."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "desk.settings")
if __name__ == "__main__":
    execute_from_command_line(sys.argv)
