"""The embedded store: leases in an SQLite file, for the processes of one machine.

From the outside in: `store` (what users make), `driver` (trying until the file is free), `fast` and
`operations` (one operation: in one statement, or in one transaction over `rows`), `file` (the open
file, with `place`, `boot` and `trouble`), `sockets` (notices).
"""

from joblock.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
