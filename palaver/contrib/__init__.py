"""Features that programs import, such as ``palaver.contrib.django``: by one name, installed or in a checkout."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

# A checkout has `features` beside `palaver`.
__path__ = [*import_module("palaver.features" if find_spec("palaver.features") else "features").__path__]
