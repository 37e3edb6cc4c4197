"""Runs that had not ended when they were archived; attempts and steps as views; acts; readers of one tenant.

The log says of an attempt when it ended, and how. It could begin at the end of what came before it in its run, or of
the wait for another try: ``seconds`` is the time since then, with that for which it waited for a worker.

    SELECT palaver.admit_reader('reporting', 'k7m2qx');          -- it sees that tenant alone, whatever it sets
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make them, and have readers admitted to all views."""
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    lacks = sa.text("ended_at IS NULL")
    op.create_index(
        "runs_unfinished",
        "runs",
        ["conversation_id"],
        schema="palaver" if is_postgresql else None,
        postgresql_where=lacks,
        sqlite_where=lacks,
    )
    _make_acts(is_postgresql)
    # The oldest revision whose code reads and writes these tables.
    counters = "palaver.counters" if is_postgresql else "counters"
    op.execute(f"INSERT INTO {counters} (name, value) VALUES ('oldest', 1)")
    if is_postgresql:
        op.execute(f"CREATE VIEW palaver.attempts AS {_POSTGRESQL_ATTEMPTS}")
        op.execute(f"CREATE VIEW palaver.steps AS {_POSTGRESQL_STEPS}")
        op.execute(_ADMIT_READER)
        op.execute(_ADMIT_READER_OF)
    else:
        op.execute(f"CREATE VIEW attempts AS {_SQLITE_ATTEMPTS}")
        op.execute(f"CREATE VIEW steps AS {_SQLITE_STEPS}")


def _make_acts(is_postgresql: bool) -> None:
    schema = "palaver" if is_postgresql else None
    op.create_table(
        "acts",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True).with_variant(sa.String(24), "sqlite")),
        *(sa.Column(name, sa.Text) for name in ("operation", "key", "key_id")),
        sa.Column("operator", sa.Boolean),
        *(sa.Column(name, sa.Text) for name in ("client", "request")),
        sa.Column("status", sa.BigInteger().with_variant(sa.Integer(), "sqlite")),
        sa.Column("facts", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        schema=schema,
    )
    op.create_index("acts_of_tenant", "acts", ["tenant", "at"], schema=schema)
    if is_postgresql:
        op.execute("ALTER TABLE palaver.acts ENABLE ROW LEVEL SECURITY")
        op.execute(
            "CREATE POLICY one_tenant ON palaver.acts FOR SELECT"
            " USING (tenant = nullif(current_setting('palaver.tenant', true), ''))"
        )


_BEFORE: Final = "ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
_RUN: Final = "PARTITION BY tenant, conversation_id, run_id"
_COLUMNS: Final = "conversation_id, position, tenant, run_id, step"
_KINDS: Final = (
    "type IN ('message.created', 'tool.finished', 'run.retrying', 'step.lost', 'run.finished') AND step IS NOT NULL"
    # Calls that never began.
    " AND coalesce(error_class, '') NOT IN ('tool_denied', 'invalid_tool_call')"
)
_OUTCOME: Final = (
    "CASE WHEN type = 'step.lost' THEN 'lost' WHEN error_class IS NOT NULL THEN 'failed' ELSE 'completed' END"
)

_POSTGRESQL_ATTEMPTS: Final = f"""
    SELECT {_COLUMNS}, call_id, CASE WHEN call_id IS NULL THEN 'model' ELSE 'tool' END AS kind,
        row_number() OVER ({_RUN}, step ORDER BY position) AS attempt, at AS ended_at,
        greatest(0, extract(epoch FROM at - CASE WHEN call_id IS NULL THEN after_all
            ELSE greatest(after_asked, after_own) END))::double precision AS seconds,
        {_OUTCOME} AS outcome, error_class, error_code, waits,
        model, tool, cost_usd
    FROM (
        SELECT *,
            max(free_at) OVER ({_RUN} {_BEFORE}) AS after_all,
            max(free_at) FILTER (WHERE type = 'message.created') OVER ({_RUN} {_BEFORE}) AS after_asked,
            max(free_at) OVER ({_RUN}, call_id {_BEFORE}) AS after_own
        FROM (
            SELECT e.conversation_id, e.position, e.tenant, e.run_id, e.type, e.at, doc.step,
                coalesce(said ->> 'call_id', nullif(split_part(doc.step, '/', 2), '')) AS call_id,
                CASE WHEN e.type = 'run.retrying' THEN (said ->> 'delay')::double precision END AS waits,
                e.at + CASE WHEN e.type = 'run.retrying' THEN coalesce((said ->> 'delay')::double precision, 0) ELSE 0
                    END * interval '1 second' AS free_at,
                said #>> '{{error,class}}' AS error_class, said #>> '{{error,code}}' AS error_code,
                coalesce(said ->> 'model', nullif(concat_ws('/', said #>> '{{error,provider,name}}',
                    said #>> '{{error,provider,model}}'), '')) AS model,
                CASE WHEN e.type = 'tool.finished' THEN said #>> '{{message,name}}' END AS tool,
                (said ->> 'cost_usd')::numeric AS cost_usd
            FROM palaver.entries AS e CROSS JOIN LATERAL (
                SELECT said, coalesce(said ->> 'step', said #>> '{{error,step}}') AS step
                FROM (SELECT coalesce(e.readable, e.data)::jsonb AS said OFFSET 0) AS read
            ) AS doc
            WHERE e.run_id IS NOT NULL
        ) AS each
    ) AS each
    WHERE {_KINDS}"""
_POSTGRESQL_STEPS: Final = """
    SELECT conversation_id, max(position) AS position, tenant, run_id, step, call_id, kind, count(*) AS attempts,
        max(ended_at) AS ended_at, sum(seconds) AS seconds, sum(waits) AS waits,
        (array_agg(outcome ORDER BY position DESC))[1] AS outcome,
        (array_agg(error_class ORDER BY position DESC))[1] AS error_class,
        (array_agg(model ORDER BY position DESC))[1] AS model,
        (array_agg(tool ORDER BY position DESC))[1] AS tool, sum(cost_usd) AS cost_usd
    FROM palaver.attempts GROUP BY conversation_id, tenant, run_id, step, call_id, kind"""

_SAID: Final = "coalesce(e.readable, e.data)"
_SQLITE_ATTEMPTS: Final = f"""
    SELECT {_COLUMNS}, call_id, CASE WHEN call_id IS NULL THEN 'model' ELSE 'tool' END AS kind,
        row_number() OVER ({_RUN}, step ORDER BY position) AS attempt, at AS ended_at,
        max(0, round((julianday(at) - CASE WHEN call_id IS NULL THEN after_all
            ELSE max(coalesce(after_asked, after_own), coalesce(after_own, after_asked)) END) * 86400, 3)) AS seconds,
        {_OUTCOME} AS outcome, error_class, error_code, waits,
        model, tool, cost_usd
    FROM (
        SELECT *,
            max(free_at) OVER ({_RUN} {_BEFORE}) AS after_all,
            max(free_at) FILTER (WHERE type = 'message.created') OVER ({_RUN} {_BEFORE}) AS after_asked,
            max(free_at) OVER ({_RUN}, call_id {_BEFORE}) AS after_own
        FROM (
            SELECT *, julianday(at) + coalesce(waits, 0) / 86400.0 AS free_at,
                coalesce(called, CASE WHEN instr(step, '/') THEN substr(step, instr(step, '/') + 1) END) AS call_id
            FROM (
                SELECT e.conversation_id, e.position, e.tenant, e.run_id, e.type, e.at,
                    coalesce(json_extract({_SAID}, '$.step'), json_extract({_SAID}, '$.error.step')) AS step,
                    json_extract({_SAID}, '$.call_id') AS called,
                    CASE WHEN e.type = 'run.retrying' THEN json_extract({_SAID}, '$.delay') END AS waits,
                    json_extract({_SAID}, '$.error.class') AS error_class,
                    json_extract({_SAID}, '$.error.code') AS error_code,
                    coalesce(json_extract({_SAID}, '$.model'), json_extract({_SAID}, '$.error.provider.name')
                        || coalesce('/' || json_extract({_SAID}, '$.error.provider.model'), '')) AS model,
                    CASE WHEN e.type = 'tool.finished' THEN json_extract({_SAID}, '$.message.name') END AS tool,
                    json_extract({_SAID}, '$.cost_usd') AS cost_usd
                FROM entries AS e WHERE e.run_id IS NOT NULL
            )
        )
    )
    WHERE {_KINDS}"""
# SQLite takes plain columns from the row of the one maximum.
_SQLITE_STEPS: Final = """
    SELECT conversation_id, max(position) AS position, tenant, run_id, step, call_id, kind, count(*) AS attempts,
        ended_at, sum(seconds) AS seconds, sum(waits) AS waits, outcome, error_class, model, tool,
        sum(cost_usd) AS cost_usd
    FROM attempts GROUP BY conversation_id, tenant, run_id, step, call_id, kind"""

_ADMIT_READER: Final = """
    CREATE OR REPLACE FUNCTION palaver.admit_reader(reader regrole) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE name text;
    BEGIN
        EXECUTE format('GRANT USAGE ON SCHEMA palaver TO %s', reader);
        EXECUTE format('GRANT SELECT ON palaver.conversations, palaver.runs, palaver.entries, palaver.acts TO %s',
            reader);
        IF current_setting('server_version_num')::integer >= 150000 THEN
            FOREACH name IN ARRAY ARRAY['messages', 'tool_calls', 'approvals', 'usage', 'attempts', 'steps'] LOOP
                EXECUTE format('ALTER VIEW palaver.%I SET (security_invoker = true)', name);
                EXECUTE format('GRANT SELECT ON palaver.%I TO %s', name, reader);
            END LOOP;
        END IF;
    END $$"""
# A restrictive policy leaves nothing that the setting of the other one would let in.
_ADMIT_READER_OF: Final = """
    CREATE FUNCTION palaver.admit_reader(reader regrole, its_tenant text) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE name text; kind text;
    BEGIN
        PERFORM palaver.admit_reader(reader);
        FOREACH name IN ARRAY ARRAY['conversations', 'runs', 'entries', 'acts'] LOOP
            FOREACH kind IN ARRAY ARRAY['PERMISSIVE', 'RESTRICTIVE'] LOOP
                EXECUTE format('DROP POLICY IF EXISTS %I ON palaver.%I', lower(kind) || '_' || reader::oid, name);
                EXECUTE format('CREATE POLICY %I ON palaver.%I AS %s FOR SELECT TO %s USING (tenant = %L)',
                    lower(kind) || '_' || reader::oid, name, kind, reader, its_tenant);
            END LOOP;
        END LOOP;
    END $$"""
