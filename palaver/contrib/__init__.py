"""Features that programs import by name, such as ``palaver.contrib.django``: the name is one, in an installed wheel and
in a checkout."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

# A checkout has `features` beside `palaver`.
__path__ = [*import_module("palaver.features" if find_spec("palaver.features") else "features").__path__]
