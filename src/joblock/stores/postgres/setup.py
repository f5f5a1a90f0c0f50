"""Makes the tables and functions where they are missing, by however many processes at once."""

from __future__ import annotations

from joblock.stores.postgres.ddl import FORMAT, ddl, quoted

SETUP_PATIENCE = 30.0
"""Seconds; the others that start at the same time are waited for."""

_LOCK = 0x6A6F626C6F636B  # "joblock"


def setup_script(schema: str) -> str:
    """One transaction, which does nothing once all is there.

    Each statement in the block sees what was committed before the lock was had. Nothing is created
    that exists, since that would ask for rights that the role then does not need.
    """
    literal = "'" + schema.replace("'", "''") + "'"
    return f"""
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = 0;
SET LOCAL client_min_messages = warning;
DO $joblock_setup$
DECLARE found integer;
BEGIN
    PERFORM pg_advisory_xact_lock({_LOCK});
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {literal}) THEN
        CREATE SCHEMA {quoted(schema)};
    END IF;
    IF EXISTS (SELECT FROM pg_tables
               WHERE schemaname = {literal} AND tablename = 'job_lock_meta') THEN
        SELECT format INTO found FROM {quoted(schema)}.job_lock_meta;
        IF found > {FORMAT} THEN
            RAISE EXCEPTION 'the tables are of format %, which this version of joblock does not '
                'know: upgrade it, or give it another schema', found USING errcode = 'JB002';
        END IF;
        IF EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                   WHERE n.nspname = {literal} AND p.proname = 'joblock_{FORMAT}_told') THEN
            RETURN;
        END IF;
    END IF;
    EXECUTE $joblock_ddl${ddl(schema)}$joblock_ddl$;
END $joblock_setup$;
COMMIT"""
