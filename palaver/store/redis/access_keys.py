"""Keys of tenants, of what opens the API, and of who did what with it.

palaver:tenants    hash     tenants by name, their names by tag, and which are being erased    no TTL

The keys of the API that the store keeps share a hash tag; of what opens it, only digests are here.

{palaver:keys}:key:<id>     string  the record of one        TTL: 30 days after it has expired; none if it does not
{palaver:keys}:of:<tag>     zset    the keys of a tenant by time of creation; without a tag the default one's  no TTL
{palaver:keys}:used:<id>    string  the minute in which it was last used                               TTL: 400 days
{palaver:keys}:signing      hash    keys that tokens are signed with, sealed, by id                    TTL: two days
{palaver:keys}:version      string  another text after each change, for processes that remember records  no TTL

{palaver:audit}:of:<tag>    stream  who did what with keys of a tenant     TTL: the retention of it, after the last act
"""

from __future__ import annotations

from typing import Final

TENANTS = "palaver:tenants"
_API_KEYS: Final = "{palaver:keys}"
SIGNING_KEYS: Final = f"{_API_KEYS}:signing"
API_KEYS_VERSION: Final = f"{_API_KEYS}:version"


def api_key(key_id: str) -> str:
    """The record of a key of the API."""
    return f"{_API_KEYS}:key:{key_id}"


def api_key_used(key_id: str) -> str:
    """The minute in which a key of the API was last used."""
    return f"{_API_KEYS}:used:{key_id}"


def audit(tag: str) -> str:
    """The acts of a tenant."""
    return f"{{palaver:audit}}:of:{tag}"


def api_keys(tag: str) -> str:
    """The keys of the API that a tenant has."""
    return f"{_API_KEYS}:of:{tag}"
