"""One server, as ``palaver tools check`` finds it."""

from __future__ import annotations

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError

from ..guests import SourceFinding
from ..services import described
from .offers import offers_of
from .section import McpServer
from .server import Server, one_line
from .stdio_channel import StdioChannel
from .wire import InvalidAnswer, Lost, NeverSent, RequestRefused, RpcError


async def finding(settings: Settings, label: str, section: McpServer) -> SourceFinding:
    """Ask the server for its list, whatever is remembered of it."""
    table = f"mcp.{label}"
    try:
        server = Server(label, section, settings)
    except ConfigurationError as error:
        return SourceFinding(
            table, ok=False, found=str(error), advice="Set the variable, or name it in PALAVER_TOOL_ENV."
        )
    try:
        listed = await server.read()
    except (NeverSent, RequestRefused, Lost, InvalidAnswer, RpcError, TimeoutError) as error:
        found = f"It gives no list of its tools: {one_line(error, section.connect_timeout)}."
        return SourceFinding(table, ok=False, found=found, advice=_advice(server, error))
    finally:
        await server.accesses.close()
    left_out = server.take(listed)
    named = server.connection.server or "a server without a name"
    found = f"{named}, {server.connection.revision}: {len(server.offers)} of {len(listed.tools)} tools."
    sentences = (f"{sentence[:1].upper()}{sentence[1:]}." for sentence in left_out)
    accepting = ""
    if section.pin:
        unpinned = section.model_copy(update={"pin": False})
        pins = {offer.name: offer.digest for offer in offers_of(label, unpinned, listed.tools)[0]}
        changed = {name: digest for name, digest in pins.items() if section.pins.get(name) != digest}
        lines = ", ".join(f'"{name}" = "{digest}"' for name, digest in changed.items())
        accepting = f"Look at what changed and accept it under [mcp.{label}.pins]: {lines}" if changed else ""
    return SourceFinding(
        table,
        ok=not accepting,
        found=" ".join(
            [found, *sentences, *described({offer.name: offer.declaration for offer in server.offers.values()})]
        ),
        tools=tuple(sorted(server.offers)),
        advice=accepting,
    )


def _advice(server: Server, error: Exception) -> str:
    if isinstance(server.channel, StdioChannel) and server.channel.last_words:
        words = server.channel.last_words.decode("utf-8", "replace")
        return f"Its last words: {one_line(Exception(words), 0)}"
    if isinstance(error, RequestRefused) and error.status in (401, 403):
        return "Look at the secrets that its headers name."
    return "See that it runs, and that it is reached from here."
