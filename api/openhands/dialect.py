"""The dialect that the routes here are added to."""

from __future__ import annotations

from typing import Annotated, Final

from ..dialects import Dialect
from ..headers import JSON
from ..openapi import ErrorFormat
from ..signatures import InPath
from .problems import SCHEMA, respond

PREFIX: Final = "/openhands"
OPENHANDS: Final = Dialect("openhands", PREFIX, respond, ErrorFormat(JSON, "OpenHandsError", SCHEMA))

ConversationUuid = Annotated[str, InPath("The conversation, a UUID.")]
