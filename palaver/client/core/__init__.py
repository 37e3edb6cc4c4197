"""Every method of the clients, written once: what to ask, when to ask again, what it means."""

from __future__ import annotations

from palaver.client.core.control import Control
from palaver.client.core.exporting import Exporting
from palaver.client.core.many import Many
from palaver.client.core.reading import Reading
from palaver.client.core.submitting import Submitting

__all__ = ["Core"]


class Core(Submitting, Control, Many, Reading, Exporting):
    """The methods as flows. ``url`` is for messages only; ``timeout`` seconds may pass in silence."""

    __slots__ = ()
