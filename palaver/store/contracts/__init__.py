"""The declarations of the scripts: what each takes and answers. Lua gets its side from them, by ``assembly.py``."""

from __future__ import annotations

from typing import Any, Final

from palaver.store.contracts.declaration import Script
from palaver.store.contracts.logs import CopyLog, DeleteConversation, DeleteRun, Read
from palaver.store.contracts.providers import Admit, Cool, Hold, Release
from palaver.store.contracts.runs import Act, Cancel, Submit
from palaver.store.contracts.steps import Attend, Claim, Feed, HandBack, Postpone, Recall, Renew, Settle

__all__ = [
    "SCRIPTS", "Act", "Admit", "Attend", "Cancel", "Claim", "Cool", "CopyLog", "DeleteConversation", "DeleteRun",
    "Feed", "HandBack", "Hold", "Postpone", "Read", "Recall", "Release", "Renew", "Settle", "Submit",
]  # fmt: skip

SCRIPTS: Final[tuple[type[Script[Any]], ...]] = (
    Submit, Claim, Settle, HandBack, Postpone, Recall, Attend, Cancel, Act,
    DeleteRun, DeleteConversation, CopyLog, Read, Renew, Feed,
    Admit, Release, Cool, Hold,
)  # fmt: skip
"""Every script."""
