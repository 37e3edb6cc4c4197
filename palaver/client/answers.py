"""Readers of the API's answers: each answer becomes a value, or the typed error that it means."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, Field, ValidationError

from palaver.client.errors import APIError, error_type
from palaver.errors import retry_after, safe_text
from palaver.events import Event, read_event
from palaver.schemas.actions import PendingAction
from palaver.schemas.agents import ServerAgent
from palaver.schemas.api_keys import KeyInfo, KeyList, MadeKey
from palaver.schemas.batches import Batch, BatchResult
from palaver.schemas.conversation import (
    AppendedMessages,
    Conversation,
    ConversationCount,
    ConversationMessage,
    SideAnswer,
)
from palaver.schemas.erasures import Erasure
from palaver.schemas.fields import DataModel
from palaver.schemas.listed_model import ListedModel
from palaver.schemas.models import Run, RunCount
from palaver.schemas.schedules import ListedSchedule, Schedule
from palaver.schemas.tenants import TenantInfo, TenantList
from palaver.schemas.tokens import Token
from palaver.schemas.webhooks import MadeWebhook, ReplayResult, WebhookDelivery, WebhookInfo, WebhookList
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.limits import MIB

_M = TypeVar("_M", bound=BaseModel)

UNEXPECTED: Final = "unexpected_answer"
"""The code of an answer that is not Palaver's: a proxy's page, another program on that port."""


_SHOWN: Final = 100

MAX_ANSWER: Final = 64 * MIB
"""Bytes of an answer, or of one event: a larger one is not Palaver's, whose pages have some MB."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of the API. Header names are in lower case; ``body`` is empty while a stream is read."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def ok(self) -> bool:
        """True if it is a success."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: the entries as they came, and where the next one begins."""

    data: Sequence[Any]
    cursor: str | None
    """For lists of runs; None on the last page."""
    after: int | None
    """For messages: the log's position to go on behind; None on the last page."""


class SecretNames(DataModel):
    """The secrets of a conversation."""

    data: tuple[str, ...]
    """Their names, in order."""


class BulkResult(DataModel):
    """The result of an operation on many runs."""

    matched: int = 0
    """Runs that the filter admits."""
    done: int = 0
    """Runs that it was done to; 0 in a dry run."""
    skipped: dict[str, int] = Field(default={})
    """The others, by the code that each would have been refused with; in a dry run as far as their statuses tell."""
    dry_run: bool = False
    run_ids: tuple[str, ...] = ()
    """The first 100 of those that it was done to, or would be."""
    retried_as: dict[str, str] = Field(default={})
    """With ``retry``, for each of these the run that goes on with it."""

    @property
    def able(self) -> int:
        """Runs that it was done to, or would be."""
        return self.matched - sum(self.skipped.values()) if self.dry_run else self.done

    def __add__(self, more: BulkResult) -> BulkResult:
        shown = (self.run_ids + more.run_ids)[:_SHOWN]
        return BulkResult(
            matched=self.matched + more.matched,
            done=self.done + more.done,
            skipped=Counter(self.skipped) + Counter(more.skipped),
            dry_run=more.dry_run,
            run_ids=shown,
            retried_as={old: new for old, new in {**self.retried_as, **more.retried_as}.items() if old in shown},
        )


def run_of(response: Response) -> Run:
    """The run in an answer. Raises `APIError` when there is none."""
    return _model(Run, _object(response), response)


def runs_of(page: Page, response: Response) -> tuple[Run, ...]:
    """The runs of a page. Raises `APIError` when they are not runs."""
    return tuple(_model(Run, entry, response) for entry in page.data)


def schedule_of(response: Response) -> Schedule:
    """The schedule in an answer. Raises `APIError` when there is none."""
    return _model(Schedule, _object(response), response)


def schedules_of(page: Page, response: Response) -> tuple[ListedSchedule, ...]:
    """The schedules of a page. Raises `APIError` when they are not schedules."""
    return tuple(_model(ListedSchedule, entry, response) for entry in page.data)


def batch_of(response: Response) -> Batch:
    """The batch in an answer. Raises `APIError` when there is none."""
    return _model(Batch, _object(response), response)


def batches_of(page: Page, response: Response) -> tuple[Batch, ...]:
    """The batches of a page. Raises `APIError` when they are not batches."""
    return tuple(_model(Batch, entry, response) for entry in page.data)


def results_of(response: Response) -> tuple[tuple[BatchResult, ...], int | None]:
    """The results of a page, and where the next one begins. Raises `APIError` when they are not results."""
    found = _object(response)
    results = tuple(_model(BatchResult, entry, response) for entry in found.get("data") or ())
    return results, found.get("next_after")


def models_of(page: Page, response: Response) -> tuple[ListedModel, ...]:
    """The models of a page. Raises `APIError` when they are not models."""
    return tuple(_model(ListedModel, entry, response) for entry in page.data)


def agent_of(response: Response) -> ServerAgent:
    """The agent that was kept or read."""
    return _model(ServerAgent, _object(response), response)


def agents_of(page: Page, response: Response) -> tuple[ServerAgent, ...]:
    """The agents of one page."""
    return tuple(_model(ServerAgent, entry, response) for entry in page.data)


def run_count_of(response: Response) -> Mapping[RunStatus, int]:
    """The number of runs in each status. Raises `APIError` when there is none."""
    return _model(RunCount, _object(response), response).statuses


def conversation_of(response: Response) -> Conversation:
    """The conversation in an answer. Raises `APIError` when there is none."""
    return _model(Conversation, _object(response), response)


def conversations_of(page: Page, response: Response) -> tuple[Conversation, ...]:
    """The conversations of a page. Raises `APIError` when they are not conversations."""
    return tuple(_model(Conversation, entry, response) for entry in page.data)


def count_of(response: Response) -> ConversationCount:
    """The number in an answer. Raises `APIError` when there is none."""
    return _model(ConversationCount, _object(response), response)


def messages_of(page: Page, response: Response) -> tuple[ConversationMessage, ...]:
    """The messages of a page. Raises `APIError` when they are not messages."""
    return tuple(_model(ConversationMessage, entry, response) for entry in page.data)


def appended_of(response: Response) -> AppendedMessages:
    """Read the place in the log of messages that were added without a run."""
    return _model(AppendedMessages, _json(response.body), response)


def secret_names_of(response: Response) -> tuple[str, ...]:
    """The names of secrets in an answer. Raises `APIError` when there are none."""
    return _model(SecretNames, _object(response), response).data


def made_key_of(response: Response) -> MadeKey:
    """The key in an answer. Raises `APIError` when there is none."""
    return _model(MadeKey, _object(response), response)


def keys_of(response: Response) -> tuple[KeyInfo, ...]:
    """The keys in an answer. Raises `APIError` when there are none."""
    return tuple(_model(KeyList, _object(response), response).data)


def tenants_of(response: Response) -> tuple[TenantInfo, ...]:
    """The tenants in an answer. Raises `APIError` when there are none."""
    return tuple(_model(TenantList, _object(response), response).data)


def tenant_of(response: Response) -> TenantInfo:
    """The tenant in an answer. Raises `APIError` when there is none."""
    return _model(TenantInfo, _object(response), response)


def erasure_of(response: Response) -> Erasure:
    """The erasure in an answer. Raises `APIError` when there is none."""
    return _model(Erasure, _object(response), response)


def made_webhook_of(response: Response) -> MadeWebhook:
    """The webhook with its secret in an answer. Raises `APIError` when there is none."""
    return _model(MadeWebhook, _object(response), response)


def webhooks_of(response: Response) -> tuple[WebhookInfo, ...]:
    """The webhooks in an answer. Raises `APIError` when there are none."""
    return tuple(_model(WebhookList, _object(response), response).data)


def webhook_of(response: Response) -> WebhookInfo:
    """The webhook in an answer. Raises `APIError` when there is none."""
    return _model(WebhookInfo, _object(response), response)


def deliveries_of(page: Page, response: Response) -> tuple[WebhookDelivery, ...]:
    """The deliveries of a page. Raises `APIError` when there are none."""
    return tuple(_model(WebhookDelivery, entry, response) for entry in page.data)


def replayed_of(response: Response) -> ReplayResult:
    """The number of deliveries that are made again. Raises `APIError` when there is none."""
    return _model(ReplayResult, _object(response), response)


def token_of(response: Response) -> Token:
    """The token in an answer. Raises `APIError` when there is none."""
    return _model(Token, _object(response), response)


def side_answer_of(response: Response) -> SideAnswer:
    """The answer to a question beside a conversation."""
    return _model(SideAnswer, _json(response.body), response)


def bulk_of(response: Response) -> tuple[BulkResult, str | None]:
    """Read the result, and where to go on; None at the end. Raises `APIError` when the answer does not say."""
    body = _object(response)
    return _model(BulkResult, body, response), _text(body.get("next_cursor"))


def object_of(response: Response) -> dict[str, Any]:
    """The JSON object in an answer. Raises `APIError` when there is none."""
    return _object(response)


def page_of(response: Response) -> Page:
    """One page of a list. Raises `APIError` if the answer is not a page."""
    body = _object(response)
    data, cursor, after = body.get("data"), body.get("next_cursor"), body.get("next_after")
    if not isinstance(data, list):
        raise unexpected(response)
    more = body.get("has_more") is True
    return Page(data, _text(cursor) or None, after if more and isinstance(after, int) else None)


def event_of(data: bytes, response: Response) -> Event:
    """The event in the data of a stream's event. Raises `APIError` when it is not one."""
    try:
        return read_event(data.decode(errors="replace"))
    except ValueError:
        raise unexpected(response) from None


def error_of(response: Response) -> APIError:
    """The error that an answer without success means. Never raises."""
    body = _json(response.body)
    if not isinstance(body, dict):
        return unexpected(response)
    detail = next((text for text in (body.get("detail"), body.get("title")) if isinstance(text, str)), None)
    code, errors = body.get("code"), body.get("errors")
    return error_type(response.status)(
        response.status,
        code if isinstance(code, str) else f"http_{response.status}",
        detail or f"the API answered HTTP {response.status}",
        _text(body.get("request_id")) or response.headers.get("x-request-id"),
        [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else (),
        run_id=_text(body.get("run_id")),
        retry_after=retry_after(response.headers),
        pending_actions=_pending(body.get("pending_actions")),
    )


def unexpected(response: Response) -> APIError:
    """The error for an answer that is not Palaver's."""
    where = response.headers.get("location")
    what = f"a redirect to {safe_text(where)}" if where else "something that is not Palaver's API"
    return error_type(response.status)(
        response.status,
        UNEXPECTED,
        f"HTTP {response.status} from {what}; is the URL right?",
        response.headers.get("x-request-id"),
        retry_after=retry_after(response.headers),
    )


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _object(response: Response) -> dict[str, Any]:
    body = _json(response.body)
    if not isinstance(body, dict):
        raise unexpected(response)
    return body


def _model(kind: type[_M], data: Any, response: Response) -> _M:
    try:
        # Through JSON: agent specs are strict, and only there a list is a tuple and a text a time. What a newer server
        # says beyond what this version knows is in `model_extra`.
        return kind.model_validate_json(json.dumps(data), extra="allow")
    except ValidationError:
        raise unexpected(response) from None


def _pending(actions: object) -> Sequence[PendingAction]:
    try:
        return [PendingAction.model_validate(action) for action in actions] if isinstance(actions, list) else ()
    except ValidationError:
        return ()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
