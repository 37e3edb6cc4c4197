"""The dialect that the routes here are added to."""

from __future__ import annotations

from typing import Annotated, Final

from ..dialects import Dialect
from ..openapi import ErrorFormat
from ..signatures import InPath
from .problems import MEDIA_TYPE, PROBLEM, respond

NATIVE: Final = Dialect("", "", respond, ErrorFormat(MEDIA_TYPE, "Problem", PROBLEM))

RunId = Annotated[str, InPath("The run's id.")]
ConversationId = Annotated[str, InPath("The conversation's id.")]
