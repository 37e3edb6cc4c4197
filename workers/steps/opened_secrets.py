"""The secrets of the conversations that a worker works for, opened."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from palaver.late import dataclass
from palaver.schemas.models import Run
from palaver.secrets.redaction import Secrets
from palaver.steps.leases import Lease
from palaver.store.conversations.vault import Vault, endpoint_of, is_of_endpoint

_MOST: Final = 500
"""Conversations whose secrets a process remembers: about as many steps as a model worker has in flight."""


@dataclass(frozen=True, slots=True)
class OpenedSecrets:
    """The secrets of one conversation."""

    values: Mapping[str, str] = field(repr=False)
    """The secrets for tools, by name."""
    keys: Mapping[str, str] = field(repr=False)
    """The keys of endpoints, by the names of their secrets."""
    compared: Secrets
    """The secrets with which everything that others say is compared."""


class SecretCache:
    """Opened secrets, by conversation: most steps need those of the step before."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._opened: OrderedDict[str, tuple[tuple[str, str], OpenedSecrets]] = OrderedDict()

    async def of(self, lease: Lease) -> OpenedSecrets:
        """The secrets of the lease's conversation that its agent may need, as they were at the claim or later.

        Raises:
            KeyMissing, SealBroken: they cannot be opened.
            UnknownConversation: the conversation is gone.
        """
        at, conversation_id = (lease.secrets_at, endpoint_of(lease.agent)), lease.conversation_id
        known = self._opened.get(conversation_id)
        if known is None or known[0] != at:
            values = await self._vault.opened(conversation_id, lease.agent)
            of_tools = {name: value for name, value in values.items() if not is_of_endpoint(name)}
            of_endpoints = {name: value for name, value in values.items() if is_of_endpoint(name)}
            known = at, OpenedSecrets(of_tools, of_endpoints, Secrets(values.values(), named=True))
            self._opened[conversation_id] = known
        self._opened.move_to_end(conversation_id)
        while len(self._opened) > _MOST:
            self._opened.popitem(last=False)
        return known[1]

    async def of_child(self, child: Run) -> Secrets:
        """The secrets of a child's conversation, to compare with what its parent is told of it: one may have been set
        since the child said that.

        Raises:
            KeyMissing, SealBroken: they cannot be opened.
            UnknownConversation: the conversation is gone.
        """
        values = await self._vault.opened(child.conversation_id, child.agent)
        return Secrets(values.values(), named=True)
