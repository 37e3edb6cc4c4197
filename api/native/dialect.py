"""The dialect that the routes here are added to."""

from __future__ import annotations

from typing import Annotated, Final

from ..dialects import Dialect
from ..openapi import ErrorFormat
from ..operations import keep_to_conversation, keep_to_run
from ..signatures import InPath
from .problems import MEDIA_TYPE, PROBLEM, respond

NATIVE: Final = Dialect("", "", respond, ErrorFormat(MEDIA_TYPE, "Problem", PROBLEM))

RunId = Annotated[str, InPath("The run's id.", keep=keep_to_run)]
ConversationId = Annotated[str, InPath("The conversation's id.", keep=keep_to_conversation)]
