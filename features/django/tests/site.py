"""The pages of the project."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpResponse
from django.urls import path

import palaver


def greet(request: Any) -> Any:
    """Answer as any page of the project."""
    return HttpResponse("a page of Django's")


def by_name(user: Any) -> palaver.Identity | None:
    """Let users whose names begin with a letter be callers, in one tenant."""
    return palaver.Identity(f"user:{user.username}", "shop") if user.username[0].isalpha() else None


urlpatterns = [path("admin/", admin.site.urls), path("", greet)]
