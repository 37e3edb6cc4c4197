"""The project, with Palaver below /agents/: ``uvicorn desk.asgi:application``."""

from __future__ import annotations

from django.core.asgi import get_asgi_application

from palaver.contrib import django

application = django.asgi(get_asgi_application(), path="/agents/")
