"""The PostgreSQL store, for PostgreSQL 12 and later.

`schema.sql` and `functions.sql` are what is kept and done in the database, `statements` how each
operation is asked for. Sending is left to a thin driver per library.
"""

from __future__ import annotations

from joblock.stores.postgres.ddl import ddl
from joblock.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore", "ddl"]
