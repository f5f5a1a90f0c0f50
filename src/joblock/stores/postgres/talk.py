"""One connection's side of the conversation, over libpq as psycopg 3 gives it, without waiting.

`send` starts a request; then, whenever the socket can be read, `read` takes in what came and says
whether the reply is complete. Who waits for the socket, and how, is the sync or async driver's
business. psycopg's cursors are passed by: they cost as much as the statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import Error, pq

from joblock.stores.postgres.faults import Manner, Trouble
from joblock.stores.postgres.statements import Statement, Value

_OK = pq.ConnStatus.OK
_TUPLES = pq.ExecStatus.TUPLES_OK
_FATAL = pq.ExecStatus.FATAL_ERROR
_IN_ERROR = (pq.TransactionStatus.INERROR, pq.TransactionStatus.INTRANS)
_SQLSTATE = pq.DiagnosticField.SQLSTATE
_PARAMETER = re.compile(r"\$(\d+)")


class Talk:
    """A connection with at most one request on its way."""

    __slots__ = (
        "_next", "_opened", "_prepared", "_text", "_trouble", "asked", "connection", "pending",
        "pg", "socket",
    )  # fmt: skip

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.pg: Any = connection.pgconn
        self.socket: int = self.pg.socket
        self.asked = 0
        self.pending = False
        self._prepared: set[bytes] = set()
        self._text = ""
        self._trouble: Trouble | None = None
        self._next: tuple[Statement, list[bytes]] | None = None
        self._opened: Callable[[str], str] | None = None

    def send(self, statement: Statement, values: Sequence[Value], manner: Manner) -> bool:
        """Start a request; True if the socket must become writable before all of it is sent."""
        pg = self.pg
        encoded = [
            value.encode() if type(value) is str else b"%d" % value  # type: ignore[operator]
            for value in values
        ]
        self._begin()
        self._opened = statement.opened
        try:
            if manner.stated:
                pg.send_query(self._in_transaction(statement, encoded))
            elif not manner.prepared:
                pg.send_query_params(statement.sql, encoded)
            elif statement.name in self._prepared:
                pg.send_query_prepared(statement.name, encoded)
            else:
                pg.send_prepare(statement.name, statement.sql)
                self._next = statement, encoded
            return bool(pg.flush())
        except Error as error:
            raise self._gone(error) from error

    def send_script(self, script: str) -> bool:
        """Start several statements without parameters."""
        self._begin()
        try:
            self.pg.send_query(script.encode())
            return bool(self.pg.flush())
        except Error as error:
            raise self._gone(error) from error

    def flush(self) -> bool:
        """Send more of the request; True while not all of it is sent."""
        try:
            return bool(self.pg.flush())
        except Error as error:
            raise self._gone(error) from error

    def read(self) -> bool:
        """Take in what has come; True once the reply is complete. Raises Trouble when it is bad."""
        pg = self.pg
        try:
            pg.consume_input()
            while not pg.is_busy():
                result = pg.get_result()
                if result is not None:
                    self._take(result)
                elif not self._more():
                    self.pending = False
                    return True
        except Error as error:
            raise self._gone(error) from error
        return False

    def reply(self) -> str:
        """The text that came, once `read` has said so; raises Trouble if an error came instead."""
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        return self._text if self._opened is None else self._opened(self._text)

    @property
    def alive(self) -> bool:
        """Whether it can take another request."""
        return self.pg.status == _OK

    def _begin(self) -> None:
        self._opened = None
        self._trouble = None
        self._text = ""
        self.asked += 1
        self.pending = True

    def _take(self, result: Any) -> None:
        status = result.status
        if status == _TUPLES:
            if result.ntuples:
                self._text = (result.get_value(0, 0) or b"").decode()
        elif status == _FATAL and self._trouble is None:
            code = (result.error_field(_SQLSTATE) or b"").decode()
            message = (result.error_message or b"").decode("utf-8", "replace")
            self._trouble = Trouble(message, code, gone=not self.alive, fresh=self.asked == 1)

    def _more(self) -> bool:
        """After the last result: whether there is more to this request."""
        pg = self.pg
        if self._trouble is not None:
            self._next = None
            if pg.transaction_status in _IN_ERROR:
                pg.send_query(b"ROLLBACK")
                pg.flush()
                return True
        elif self._next is not None:
            (statement, encoded), self._next = self._next, None
            self._prepared.add(statement.name)
            pg.send_query_prepared(statement.name, encoded)
            pg.flush()
            return True
        return False

    def _in_transaction(self, statement: Statement, encoded: list[bytes]) -> bytes:
        # In one message, so it is one round trip, and a pooler keeps it on one server connection.
        escaping = pq.Escaping(self.pg)
        literals = [escaping.escape_literal(value).decode() for value in encoded]
        body = _PARAMETER.sub(lambda match: literals[int(match[1]) - 1], statement.text)
        return f"BEGIN ISOLATION LEVEL READ COMMITTED;{body};COMMIT".encode()

    def _gone(self, error: Exception) -> Trouble:
        self._next = None
        return Trouble(str(error) or type(error).__name__, gone=True, fresh=self.asked <= 1)
