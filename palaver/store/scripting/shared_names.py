"""The names that Python and the scripts share: the scripts write ``Namespace.NAME``, and get it from here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, Self, get_args

from palaver.config.settings import Settings
from palaver.errors import ErrorClass
from palaver.errors.sentences import Sentence
from palaver.errors.vocabulary import FACTS
from palaver.events import MESSAGES, TRACED, EventKind
from palaver.feature import brought, holding, seeing
from palaver.schemas.actions import ALL, ActionType
from palaver.schemas.models import CancelMode, OnConflict
from palaver.schemas.tenants import Caps
from palaver.steps.leases import Renewal
from palaver.steps.wire import message_templates
from palaver.store.redis import fleet_keys, provider_keys
from palaver.store.scripting.assembly import Names, Template
from palaver.store.scripting.contracts.declaration import NEWER
from palaver.store.scripting.contracts.logs import ENTRY_FIELDS, Misplaced
from palaver.store.scripting.contracts.replies import RefusalCode
from palaver.store.scripting.contracts.runs import ItemType, Resolution, SubmitKind
from palaver.store.scripting.contracts.steps import RunDue, SpanOutcome, VerdictKind
from palaver.store.scripting.log_entries import EVERY_RUN
from palaver.telemetry.metrics import OTHER, StepOutcome, TokenType, counted
from palaver.vocabulary import ledger
from palaver.vocabulary.ids import parts_of_tenant
from palaver.vocabulary.lifecycle import TRANSITIONS, RunStatus, StepState, StopReason, WaitReason
from palaver.vocabulary.limits import all_limits
from palaver.vocabulary.step_kinds import AT_ONCE, KINDS, LACKED, OF_TOOLS, RANK, RECOVERED, USUAL_PRIORITY, WINDOW

_ENUMS: Final[tuple[type[Enum], ...]] = (
    RunStatus, StopReason, WaitReason, EventKind, ErrorClass, Sentence,
    StepState, RunDue, SpanOutcome, VerdictKind, Renewal, RefusalCode,
)  # fmt: skip

HELD: Final = 10 * 365 * 86_400
"""Seconds for which what has ended is there while a feature holds it: far longer than any retention."""


class ScriptSettings(NamedTuple):
    """The settings that are written into the scripts."""

    retention: int
    history_retention: int
    """Seconds for which a run and a conversation that have ended stay, if nothing lets them go before."""
    feed_retention: int
    run_deadline_ms: int
    feed_cap: int
    max_entries: int
    max_conversation_bytes: int
    max_queued: int
    max_losses: int
    lease_ms: int
    probe_interval_ms: int
    usage_retention: int
    shards: int
    tenant_shards: int
    sends: bool
    """Scripts send their deliveries to the broker, which is the same server."""
    clustered: bool = False
    """True if messages about a conversation stay on the master of its slot."""
    features: frozenset[str] = frozenset()
    """The features that see what becomes of a run."""

    @classmethod
    def of(cls, settings: Settings, *, sends: bool = False) -> Self:
        """Return the settings for scripts among ``settings``. If they are to send deliveries, they do so where the
        broker is the store's own server."""
        return cls(
            retention=int(settings.retention),
            history_retention=HELD if holding() else int(settings.retention),
            # A feed goes with its run at the latest.
            feed_retention=int(min(settings.feed_retention, settings.retention)),
            run_deadline_ms=int(settings.run_deadline * 1000),
            feed_cap=settings.feed_cap,
            max_entries=settings.max_entries,
            max_conversation_bytes=settings.max_conversation_bytes,
            max_queued=settings.max_queued,
            max_losses=settings.max_losses,
            lease_ms=int(settings.lease_seconds * 1000),
            probe_interval_ms=int(settings.probe_interval * 1000),
            usage_retention=int(settings.usage_retention),
            shards=settings.shards,
            tenant_shards=parts_of_tenant(settings.shards),
            sends=sends and settings.one_server,
            clustered=settings.clustered,
            features=seeing(),
        )


def shared_names(settings: ScriptSettings, version: int) -> Names:
    """Every namespace; ``version`` is that of what the scripts write."""
    return {
        **{enum.__name__: {name: member.value for name, member in enum.__members__.items()} for enum in _enums()},
        "ActionType": _texts(get_args(ActionType)),
        "CancelMode": _texts(get_args(CancelMode)),
        "OnConflict": _texts(get_args(OnConflict)),
        "SubmitKind": _texts(get_args(SubmitKind)),
        "ItemType": _texts(get_args(ItemType)),
        "Resolution": _texts(get_args(Resolution)),
        "Action": {"ALL": ALL},
        "StepKind": {
            "OF_QUEUE": {kind.queue: kind.name for kind in KINDS},
            **{kind.name.upper(): kind.name for kind in KINDS},
        },
        "StepOutcome": _texts(get_args(StepOutcome)),
        "TokenType": _texts(get_args(TokenType)),
        "Metrics": {"OTHER": OTHER},
        "Series": _texts(counted()),
        "Buckets": {name.upper(): dict(enumerate(each.buckets, 1)) for name, each in counted().items() if each.buckets},
        "Queue": {
            **{kind.name.upper(): kind.queue for kind in KINDS},
            "RECOVERED": RECOVERED,
            "OF_TOOLS": OF_TOOLS,
            "LACKED": LACKED,
            "RANK": RANK,
            "WINDOW": WINDOW,
            "AT_ONCE": AT_ONCE,
        },
        "Facts": {error_class.name: _facts(error_class) for error_class in ErrorClass},
        "Lifecycle": {
            "EDGES": frozenset(f"{source} {target}" for source in TRANSITIONS for target in TRANSITIONS[source]),
            "TERMINAL": frozenset(status for status in RunStatus if status.terminal),
            "STATUS_OF": {reason: reason.status for reason in StopReason},
        },
        "Withdrawn": {"ALL": EVERY_RUN},
        "Misplaced": _texts(get_args(Misplaced)),
        "LogEntry": {name.upper(): 2 * place for place, name in enumerate(ENTRY_FIELDS, 1)},
        "Events": {
            "FEED_ONLY": frozenset(kind for kind in EventKind if not kind.durable),
            "MESSAGES": frozenset(MESSAGES),
            "TRACED": frozenset(TRACED),
        },
        "Channel": {
            "CANCEL": fleet_keys.cancel_channel(""),
            "PAUSE": fleet_keys.PAUSE,
            "PROVIDERS": provider_keys.PROVIDERS,
            "PUBLISH": "SPUBLISH" if settings.clustered else "PUBLISH",
        },
        "Cap": _texts(Caps.model_fields),
        "Priority": {"USUAL": USUAL_PRIORITY},
        "Delivery": {"MESSAGES": {kind: Template(text) for kind, text in message_templates().items()}},
        "Ledger": ledger.NAMES,
        "Limit": {name.upper(): limit.value for name, limit in all_limits().items()},
        "Setting": {name.upper(): value for name, value in settings._asdict().items()},
        "Format": {"VERSION": version, "NEWER": NEWER},
    }


def _enums() -> Iterator[type[Enum]]:
    yield from _ENUMS
    for enums in brought("names"):
        yield from enums


def _texts(texts: Iterable[str]) -> Mapping[str, str]:
    return {text.upper(): text for text in texts}


def _facts(error_class: ErrorClass) -> Mapping[str, Any]:
    """Return the fields that every error object of that class has."""
    facts = FACTS[error_class]
    return {
        "class": error_class,
        "code": error_class,
        "source": facts.source,
        "retryable": facts.retryable,
        "recoverable": facts.recoverable,
        "user_action": facts.user_action,
    }
