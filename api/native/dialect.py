"""The dialect that the routes here are added to."""

from __future__ import annotations

from typing import Annotated, Final

from api.dialects import Dialect
from api.native.problems import MEDIA_TYPE, PROBLEM, respond
from api.openapi import ErrorFormat
from api.signatures import InPath

NATIVE: Final = Dialect("", "", respond, ErrorFormat(MEDIA_TYPE, "Problem", PROBLEM))

RunId = Annotated[str, InPath("The run's id.")]
ConversationId = Annotated[str, InPath("The conversation's id.")]
