"""The page that hears of events, for webhooks that post to it: ``path("palaver/told", views.told)`` in the URLs of the
project."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import time
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from .project_settings import own
from .signals import tell

_PREFIX: Final = "whsec_"
_APART: Final = 300
"""Seconds that the clocks of both sides, and the way between them, may be apart."""


@csrf_exempt
@require_POST
def told(request: HttpRequest) -> HttpResponse:
    """Send the signal of an event, if it is signed with a secret of ``PALAVER["TOLD_SECRET"]``: one, or a list while it
    is replaced. Raises ImproperlyConfigured without one, and what a receiver raises: then the event comes again."""
    if not _signed(request):
        return HttpResponse("the signature does not fit", status=401, content_type="text/plain")
    tell(json.loads(request.body))
    return HttpResponse(status=204)


def _signed(request: HttpRequest) -> bool:
    """Tell whether a request is signed as Standard Webhooks says, and lately."""
    said = {name: request.headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")}
    if not said["timestamp"].isdecimal() or abs(time.time() - int(said["timestamp"][:20])) > _APART:
        return False
    signed = f"{said['id']}.{said['timestamp']}.".encode() + request.body
    wanted = [f"v1,{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}" for key in _keys()]
    given = said["signature"].encode().split()
    return any(hmac.compare_digest(one.encode(), other) for one in wanted for other in given)


def _keys() -> list[bytes]:
    secrets: Any = own("TOLD_SECRET") or ()
    try:
        found = [
            base64.b64decode(each.removeprefix(_PREFIX), validate=True)
            for each in ([secrets] if isinstance(secrets, str) else secrets)
        ]
    except (AttributeError, TypeError, binascii.Error):
        found = []
    if not found or not all(found):
        raise ImproperlyConfigured("PALAVER['TOLD_SECRET'] is the secret of the webhook, whsec_…, or a list of them")
    return found
