"""Suites that others wrote, which judge Palaver: ``make check-referees`` installs and runs them.

Each is a module or a folder here, with an ``install()`` that does nothing where it is there as it is locked now, and a
``test_NAME.py`` beside it, marked ``chaos``, which ``make test`` leaves out. What its cases show, and why some do not
pass, is a row of docs/why/referees.md.
"""

from __future__ import annotations
