"""Pages of Django's admin: the runs of all tenants, live and archived; what waits for a decision, and what it takes to
decide, stop and retry.

Django's permissions for `ListedRun` say who sees them and who acts. The API records acts under the name that the user
has there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect, render

from palaver.client import AsyncPalaver, ClientError, NotFound
from palaver.config.mounting import Identity
from palaver.vocabulary.lifecycle import RunStatus

from .asking import ask_as
from .identities import of_user
from .models import ListedRun

_PAGE: Final = 100
"""Runs on a page, and messages of a conversation."""
_ACTS: Final[Mapping[str, Callable[[AsyncPalaver, str, Any], Awaitable[Any]]]] = {
    "approve": lambda palaver, run, form: palaver.approve(run, form["action"], digest=form["digest"]),
    "deny": lambda palaver, run, form: palaver.deny(run, form["action"], digest=form["digest"]),
    "cancel": lambda palaver, run, form: palaver.cancel(run),
    "retry": lambda palaver, run, form: palaver.retry(run),
}


@admin.register(ListedRun)
class RunAdmin(admin.ModelAdmin):
    """The list of runs, and the page of one."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """No: programs submit runs."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """No."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the newest runs, of one status or of all."""
        self._require(request, self.has_view_permission)
        status, before = request.GET.get("status", ""), request.GET.get("before", "")
        if status not in ("", *RunStatus):
            raise Http404(f"no run is {status}")

        async def newest(palaver: AsyncPalaver) -> list[Any]:
            filters = {"status": status or None, "created_before": _time(before)}
            async with aclosing(palaver.list(limit=_PAGE, **filters)) as runs:  # type: ignore[arg-type]
                return [run async for run in runs]

        found: dict[str, Any] = {"title": "Runs", "status": status, "statuses": [*RunStatus]}
        try:
            found["runs"] = _as(request, newest)
        except ClientError as error:
            messages.error(request, str(error))
        else:
            found["more"] = found["runs"][-1].times.created_at if len(found["runs"]) == _PAGE else None
        return self._page(request, "runs", found)

    def change_view(self, request: HttpRequest, object_id: str, *more: Any, **options: Any) -> HttpResponse:
        """Show a run with what was said last; act on it by a form."""
        if request.method == "POST":
            self._require(request, self.has_change_permission)
            return self._act(request, object_id)
        self._require(request, self.has_view_permission)

        async def read(palaver: AsyncPalaver) -> tuple[Any, list[Any]]:
            run = await palaver.get(object_id)
            newest: list[Any] = []
            async with aclosing(palaver.messages(run.conversation_id, newest_first=True)) as said:
                async for message in said:
                    newest.append(message)
                    if len(newest) == _PAGE:
                        break
            return run, newest[::-1]

        try:
            run, said = _as(request, read)
        except NotFound:
            raise Http404("there is no such run, or not any more") from None
        except ClientError as error:
            messages.error(request, str(error))
            return redirect("admin:palaver_listedrun_changelist")
        found = {"title": run.id, "run": run, "said": said, "acts": self.has_change_permission(request)}
        return self._page(request, "run", found)

    def _act(self, request: HttpRequest, run_id: str) -> HttpResponse:
        act = _ACTS.get(request.POST.get("act", ""))
        if act is None:
            return HttpResponseNotAllowed(["GET"])
        try:
            run = _as(request, lambda palaver: act(palaver, run_id, request.POST))
        except ClientError as error:
            messages.error(request, str(error))
            return redirect("admin:palaver_listedrun_change", run_id)
        messages.success(request, f"{request.POST['act']}: the run is {run.status}")
        return redirect("admin:palaver_listedrun_change", run.id)

    def _require(self, request: HttpRequest, permission: Callable[[HttpRequest], bool]) -> None:
        if not permission(request):
            raise PermissionDenied

    def _page(self, request: HttpRequest, name: str, found: Mapping[str, Any]) -> HttpResponse:
        context = {**self.admin_site.each_context(request), **found, "opts": self.opts}
        return render(request, f"palaver_admin/{name}.html", context)


def _as(request: HttpRequest, question: Callable[[AsyncPalaver], Awaitable[Any]]) -> Any:
    """Ask as this user, who may be no caller of the API but for these pages: of all tenants, by its one name."""
    user: Any = request.user
    return ask_as(of_user(user) or Identity(f"user:{user.pk}"), question, operator=True)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        raise Http404("that is no time") from None
