"""Keys of erasures: what they have counted so far, and their receipts.

{p00}:<owner>erasure hash   what was erased of the tenant, by kind, and how far that is    gone at its end
{palaver:keys}:erasure:<tag> hash   what was erased of its keys of the API                 gone at its end
{palaver:audit}:erasure:<tag> hash  what was erased of its acts                            gone at its end
{palaver:audit}:receipt:<name> string  the receipt of a tenant that was erased             TTL: 30 days
"""

from __future__ import annotations

from palaver.store.redis.keys import owner


def erasure(shard: str, tenant: str) -> str:
    """The counts of what was erased of a tenant, and how far that is."""
    return f"{{p{shard}}}:{owner(tenant)}erasure"


def api_keys_erasure(tag: str) -> str:
    """The count of what was erased of a tenant's keys of the API."""
    return f"{{palaver:keys}}:erasure:{tag}"


def audit_erasure(tag: str) -> str:
    """The count of what was erased of the acts of a tenant."""
    return f"{{palaver:audit}}:erasure:{tag}"


def receipt(name: str) -> str:
    """The receipt of a tenant that was erased."""
    return f"{{palaver:audit}}:receipt:{name}"
