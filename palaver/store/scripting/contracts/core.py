"""Every script of the core: for who looks at all of them. One that is run is imported where it is called."""

from __future__ import annotations

from typing import Any, Final

from palaver.store.scripting.contracts.agents import KeepAgent, RemoveAgent
from palaver.store.scripting.contracts.caps import FindAllowed, Reserve
from palaver.store.scripting.contracts.conversations import BeginConversation, ChangeConversation, ForgetConversations
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.listing import Find, Measure
from palaver.store.scripting.contracts.logs import (
    Append,
    CopyLog,
    DeleteConversation,
    DeleteRun,
    FindPlace,
    Fork,
    ReadLog,
    WithdrawAfter,
)
from palaver.store.scripting.contracts.providers import (
    Admit,
    CoolDown,
    Release,
    RenewPlaces,
    ReportAnswer,
    ReportFailure,
)
from palaver.store.scripting.contracts.runs import Act, Cancel, Submit
from palaver.store.scripting.contracts.secrets import KeepSecrets
from palaver.store.scripting.contracts.server_lists import KeepServerList
from palaver.store.scripting.contracts.steps import (
    Ask,
    Attend,
    Claim,
    Fill,
    HandBack,
    Judge,
    Postpone,
    Promote,
    Renew,
    Settle,
    Sweep,
    WriteDeltas,
)
from palaver.store.scripting.contracts.tenants import CreateTenant

SCRIPTS: Final[tuple[type[Script[Any]], ...]] = (
    Submit, Claim, Settle, HandBack, Postpone, Ask, Promote, Judge, Sweep, Attend, Fill, Cancel, Act, Append,
    WithdrawAfter, FindPlace, Fork,
    BeginConversation, ChangeConversation, ForgetConversations, DeleteRun, DeleteConversation, CopyLog, ReadLog,
    KeepSecrets, KeepServerList, Find, Measure, Renew, WriteDeltas,
    KeepAgent, RemoveAgent,
    Admit, Release, CoolDown, ReportFailure, ReportAnswer, RenewPlaces,
    CreateTenant, Reserve, FindAllowed,
)  # fmt: skip
"""Every script."""
