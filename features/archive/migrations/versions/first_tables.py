"""The first tables and views.

The views say in plain columns what entries have as JSON. A message whose content has parts has their texts in ``text``,
a line each, and other parts by their kinds. They and the tables show a reader of PostgreSQL one tenant alone: that of
the setting ``palaver.tenant``, and none without it.

    SELECT palaver.admit_reader('reporting');          -- once, as the owner
    SET palaver.tenant = 'k7m2qx';                     -- as the reader: a tag, or default

The owner of the tables and superusers see all. The views are a reader's on PostgreSQL 15 and newer only: older ones run
them with the rights of their owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_USAGE: Final = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "model_calls",
    "tool_calls",
)  # fmt: skip
_LISTS_OF_CONVERSATIONS: Final = {
    "conversations_of_tenant": ("tenant", "updated_at"),
    "conversations_of_tenant_begun": ("tenant", "created_at"),
    "conversations_changed": ("updated_at",),
    "conversations_begun": ("created_at",),
}
_SUMS: Final = ", ".join(f"sum({name}) AS {name}" for name in _USAGE)


def upgrade() -> None:
    """Make them."""
    dialect = op.get_bind().dialect.name
    _make_tables(dialect)
    if dialect == "sqlite":
        for name, query in _SQLITE_VIEWS.items():
            op.execute(f"CREATE VIEW {name} AS {query}")
        return
    for name in ("conversations", "runs", "entries"):
        op.execute(f"ALTER TABLE palaver.{name} ENABLE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY one_tenant ON palaver.{name} FOR SELECT"
            " USING (tenant = nullif(current_setting('palaver.tenant', true), ''))"
        )
    for name, query in _POSTGRESQL_VIEWS.items():
        op.execute(f"CREATE VIEW palaver.{name} AS {query}")
    op.execute(_ADMIT_READER)


def _make_tables(dialect: str) -> None:
    schema = "palaver" if dialect == "postgresql" else None
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    moment = sa.DateTime(timezone=True).with_variant(sa.String(24), "sqlite")
    dollars = sa.Numeric(20, 9).with_variant(sa.Float(), "sqlite")
    document = sa.JSON().with_variant(JSONB(), "postgresql")

    def text(*names: str) -> list[sa.Column[Any]]:
        return [sa.Column(name, sa.Text) for name in names]

    def always(name: str, kind: Any = sa.Text) -> sa.Column[Any]:
        return sa.Column(name, kind, nullable=False)

    def moments(*names: str) -> list[sa.Column[Any]]:
        return [sa.Column(name, moment) for name in names]

    def counts_and_record() -> list[sa.Column[Any]]:
        counts: list[sa.Column[Any]] = [sa.Column(name, number) for name in _USAGE]
        return [
            *counts,
            sa.Column("cost_usd", dollars),
            always("metadata", document),
            always("tags", document),
            always("record"),
        ]

    def of_conversation(**options: Any) -> sa.Column[Any]:
        place = f"{schema}.conversations.id" if schema else "conversations.id"
        return sa.Column("conversation_id", sa.Text, sa.ForeignKey(place, ondelete="CASCADE"), **options)

    op.create_table(
        "conversations",
        sa.Column("id", sa.Text, primary_key=True),
        always("tenant"),
        *text("title", "folded", "agent"),
        sa.Column("agent_version", number),
        *moments("created_at", "updated_at"),
        sa.Column("entries", number),
        *text("last_run_id", "last_status", "last_stop_reason", "forked_from"),
        *counts_and_record(),
        always("version", number),
        schema=schema,
    )
    for name, columns in _LISTS_OF_CONVERSATIONS.items():
        op.create_index(name, "conversations", [*columns, "id"], schema=schema)
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, primary_key=True),
        of_conversation(nullable=False),
        always("tenant"),
        *text("status", "stop_reason", "agent"),
        sa.Column("agent_version", number),
        *text("model", "submitted_by", "input_preview", "error_class", "error_code", "error_message"),
        *moments("created_at", "started_at", "ended_at"),
        *text("parent_run_id", "retried_from"),
        *counts_and_record(),
        schema=schema,
    )
    op.create_index("runs_of_conversation", "runs", ["conversation_id"], schema=schema)
    op.create_index("runs_of_tenant", "runs", ["tenant", "created_at", "id", "status"], schema=schema)
    op.create_index("runs_begun", "runs", ["created_at", "id", "status"], schema=schema)
    op.create_table(
        "entries",
        of_conversation(primary_key=True),
        sa.Column("position", number, primary_key=True, autoincrement=False),
        always("tenant"),
        always("type"),
        *moments("at"),
        *text("run_id"),
        sa.Column("seq", number),
        always("data"),
        *text("opaque", "readable"),
        always("bytes", number),
        *text("exact"),
        schema=schema,
    )
    counters = op.create_table(
        "counters", sa.Column("name", sa.Text, primary_key=True), always("value", number), schema=schema
    )
    op.bulk_insert(counters, [{"name": "forgotten", "value": 0}])


_PLACE: Final = "e.conversation_id, e.position, e.tenant, e.run_id"
# An entry is taken apart once, whatever columns are asked for; conditions on other columns come before that.
_READ: Final = (
    "palaver.entries AS e CROSS JOIN LATERAL (SELECT coalesce(e.readable, e.data)::jsonb AS said OFFSET 0) AS doc"
)
_MESSAGES: Final = "e.type IN ('message.created', 'tool.finished')"

_POSTGRESQL_VIEWS: Final[Mapping[str, str]] = {
    "messages": f"""
        SELECT {_PLACE}, e.at,
            said #>> '{{message,role}}' AS role,
            CASE jsonb_typeof(said #> '{{message,content}}')
                WHEN 'array' THEN (
                    SELECT string_agg(
                        coalesce(part ->> 'text', '[' || concat_ws(' ', part ->> 'type', part ->> 'name') || ']'),
                        E'\\n' ORDER BY place)
                    FROM jsonb_array_elements(said #> '{{message,content}}') WITH ORDINALITY AS parts (part, place))
                ELSE coalesce(said #>> '{{message,content}}', '')
            END AS text,
            said #> '{{message,content}}' AS content,
            said ->> 'step' AS step, said ->> 'model' AS model,
            said #>> '{{message,call_id}}' AS call_id, said #>> '{{message,name}}' AS tool,
            coalesce((said #>> '{{message,is_error}}')::boolean, false) AS is_error,
            coalesce((said #>> '{{message,partial}}')::boolean, false) AS partial,
            (said ->> 'prompt_tokens')::numeric::bigint AS prompt_tokens,
            (said ->> 'output_tokens')::numeric::bigint AS output_tokens,
            (said ->> 'cost_usd')::numeric AS cost_usd
        FROM {_READ} WHERE {_MESSAGES}""",
    "tool_calls": f"""
        SELECT {_PLACE}, call ->> 'id' AS call_id, call ->> 'name' AS tool,
            coalesce(call ->> 'arguments', '{{}}') AS arguments, e.at AS asked_at, ended.at AS ended_at,
            extract(epoch FROM ended.at - e.at)::double precision AS seconds,
            ended.is_error, ended.error_class, ended.text AS result
        FROM {_READ}
        CROSS JOIN LATERAL jsonb_array_elements(
            CASE jsonb_typeof(said #> '{{message,tool_calls}}') WHEN 'array' THEN said #> '{{message,tool_calls}}'
            ELSE '[]' END) AS calls (call)
        LEFT JOIN (
            SELECT {_PLACE}, e.at, said #>> '{{message,call_id}}' AS call_id,
                coalesce((said #>> '{{message,is_error}}')::boolean, false) AS is_error,
                said #>> '{{error,class}}' AS error_class, said #>> '{{message,content}}' AS text
            FROM {_READ} WHERE e.type = 'tool.finished'
        ) AS ended ON ended.conversation_id = e.conversation_id AND ended.run_id = e.run_id
            AND ended.call_id = call ->> 'id' AND ended.position > e.position
        WHERE e.type = 'message.created'""",
    "approvals": f"""
        SELECT {_PLACE}, e.at, said ->> 'call_id' AS call_id, said ->> 'action_id' AS action_id,
            said ->> 'decision' AS decision, said ->> 'by' AS decided_by, said ->> 'reason' AS reason
        FROM {_READ} WHERE e.type = 'action.resolved'""",
    "usage": f"""
        SELECT tenant, (coalesce(ended_at, created_at) AT TIME ZONE 'UTC')::date AS day, agent, model,
            count(*) AS runs, {_SUMS}, sum(cost_usd) AS cost_usd,
            count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced_runs
        FROM palaver.runs GROUP BY tenant, day, agent, model""",
}

_SAID: Final = "coalesce(e.readable, e.data)"
_ENDED: Final = "coalesce(f.readable, f.data)"

_SQLITE_VIEWS: Final[Mapping[str, str]] = {
    "messages": f"""
        SELECT {_PLACE}, e.at,
            json_extract({_SAID}, '$.message.role') AS role,
            CASE json_type({_SAID}, '$.message.content')
                WHEN 'array' THEN (
                    SELECT group_concat(coalesce(json_extract(value, '$.text'), '[' || json_extract(value, '$.type')
                        || coalesce(' ' || json_extract(value, '$.name'), '') || ']'), char(10))
                    FROM json_each({_SAID}, '$.message.content'))
                ELSE coalesce(json_extract({_SAID}, '$.message.content'), '')
            END AS text,
            {_SAID} -> '$.message.content' AS content,
            json_extract({_SAID}, '$.step') AS step, json_extract({_SAID}, '$.model') AS model,
            json_extract({_SAID}, '$.message.call_id') AS call_id, json_extract({_SAID}, '$.message.name') AS tool,
            coalesce(json_extract({_SAID}, '$.message.is_error'), 0) AS is_error,
            coalesce(json_extract({_SAID}, '$.message.partial'), 0) AS partial,
            json_extract({_SAID}, '$.prompt_tokens') AS prompt_tokens,
            json_extract({_SAID}, '$.output_tokens') AS output_tokens,
            json_extract({_SAID}, '$.cost_usd') AS cost_usd
        FROM entries AS e WHERE {_MESSAGES}""",
    "tool_calls": f"""
        SELECT {_PLACE}, json_extract(call.value, '$.id') AS call_id, json_extract(call.value, '$.name') AS tool,
            coalesce(json_extract(call.value, '$.arguments'), '{{}}') AS arguments, e.at AS asked_at, f.at AS ended_at,
            round((julianday(f.at) - julianday(e.at)) * 86400, 3) AS seconds,
            CASE WHEN f.at IS NOT NULL THEN coalesce(json_extract({_ENDED}, '$.message.is_error'), 0) END AS is_error,
            json_extract({_ENDED}, '$.error.class') AS error_class,
            json_extract({_ENDED}, '$.message.content') AS result
        FROM entries AS e
        JOIN json_each({_SAID}, '$.message.tool_calls') AS call
        LEFT JOIN entries AS f ON f.conversation_id = e.conversation_id AND f.run_id = e.run_id
            AND f.type = 'tool.finished' AND f.position > e.position
            AND json_extract({_ENDED}, '$.message.call_id') = json_extract(call.value, '$.id')
        WHERE e.type = 'message.created'""",
    "approvals": f"""
        SELECT {_PLACE}, e.at, json_extract({_SAID}, '$.call_id') AS call_id,
            json_extract({_SAID}, '$.action_id') AS action_id, json_extract({_SAID}, '$.decision') AS decision,
            json_extract({_SAID}, '$.by') AS decided_by, json_extract({_SAID}, '$.reason') AS reason
        FROM entries AS e WHERE e.type = 'action.resolved'""",
    "usage": f"""
        SELECT tenant, substr(coalesce(ended_at, created_at), 1, 10) AS day, agent, model, count(*) AS runs, {_SUMS},
            sum(cost_usd) AS cost_usd, count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced_runs
        FROM runs GROUP BY tenant, day, agent, model""",
}

_ADMIT_READER: Final = """
    CREATE FUNCTION palaver.admit_reader(reader regrole) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE name text;
    BEGIN
        EXECUTE format('GRANT USAGE ON SCHEMA palaver TO %s', reader);
        EXECUTE format('GRANT SELECT ON palaver.conversations, palaver.runs, palaver.entries TO %s', reader);
        IF current_setting('server_version_num')::integer >= 150000 THEN
            FOREACH name IN ARRAY ARRAY['messages', 'tool_calls', 'approvals', 'usage'] LOOP
                EXECUTE format('ALTER VIEW palaver.%I SET (security_invoker = true)', name);
                EXECUTE format('GRANT SELECT ON palaver.%I TO %s', name, reader);
            END LOOP;
        END IF;
    END $$"""
