"""Schedules: runs that are submitted at times."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from palaver.client.aio.paging import pages
from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import run_of, schedule_of, schedules_of
from palaver.client.options import wire
from palaver.client.requests import plans
from palaver.schemas.models import Run
from palaver.schemas.schedules import ListedSchedule, NewSchedule, Schedule


class AsyncSchedules:
    """The methods of the client about schedules."""

    _transport: ApiTransport

    async def put_schedule(
        self, name: str, schedule: NewSchedule | Mapping[str, Any], *, version: int | None = None
    ) -> Schedule:
        """Keep a schedule under a name: ``cron`` or ``every``, and the ``run`` that each tick submits. With ``version``
        only if that is its version until now, 0: only if there is none of that name.

        Raises:
            Conflict: it has another version, or there are too many schedules.
            APIError, ConnectionFailed: it was not kept; `Unprocessable` names the fields.
        """
        return schedule_of(await self._transport.call(plans.put_schedule(name, wire(schedule), version)))

    async def schedule(self, name: str) -> Schedule:
        """The schedule, with its next ticks and what became of the last ones.

        Raises:
            NotFound: there is none of that name.
            APIError, ConnectionFailed: it cannot be had.
        """
        return schedule_of(await self._transport.call(plans.get_schedule(name)))

    async def schedules(self) -> AsyncGenerator[ListedSchedule, None]:
        """The schedules by name, page by page as you iterate.

        Raises:
            APIError, ConnectionFailed: a page cannot be had.
        """
        async with aclosing(pages(self._transport, plans.list_schedules)) as schedule_pages:
            async for page, response in schedule_pages:
                for schedule in schedules_of(page, response):
                    yield schedule

    async def pause_schedule(self, name: str) -> Schedule:
        """Let a schedule have no ticks until it is resumed.

        Raises:
            NotFound: there is none of that name.
            APIError, ConnectionFailed: it may not be paused.
        """
        return schedule_of(await self._transport.call(plans.change_schedule(name, "pause")))

    async def resume_schedule(self, name: str) -> Schedule:
        """Let a schedule go on with the ticks from now on.

        Raises:
            NotFound: there is none of that name.
            APIError, ConnectionFailed: it may be paused still.
        """
        return schedule_of(await self._transport.call(plans.change_schedule(name, "resume")))

    async def trigger_schedule(self, name: str, *, idempotency_key: str | None = None) -> Run:
        """Submit the run of a schedule now; its ticks stay as they are.

        Raises:
            NotFound: there is none of that name.
            APIError, ConnectionFailed: it was not taken on.
        """
        return run_of(await self._transport.call(plans.trigger_schedule(name, idempotency_key)))

    async def delete_schedule(self, name: str, *, version: int | None = None) -> None:
        """Remove a schedule; its runs go on. With ``version`` only if it has that.

        Raises:
            NotFound: there is none of that name.
            Conflict: it has another version.
            APIError, ConnectionFailed: it may be there still.
        """
        await self._transport.call(plans.delete_schedule(name, version))
