"""The PostgreSQL store: what it is made of, and what it is made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from joblock.borrowed import Statement
from joblock.store.contract import Abilities, Deliver
from joblock.stores.postgres.connect import (
    Place,
    place_of_engine,
    place_of_pool,
    place_of_url,
    read_url,
)
from joblock.stores.postgres.ddl import DEFAULT_SCHEMA, quoted
from joblock.stores.postgres.faults import Manner
from joblock.stores.postgres.listen import Ear, Hearing
from joblock.stores.postgres.statements import GUARD, Statements, Tell, Where, ear

if TYPE_CHECKING:
    from joblock.store.ops import Notice
    from joblock.stores.postgres.aio import AsyncDriver
    from joblock.stores.postgres.asyncpg_place import AsyncpgPlace


class PostgresStore:
    """Leases in a PostgreSQL database; see the package."""

    abilities = Abilities()

    def __init__(
        self,
        place: Place | AsyncpgPlace,
        *,
        schema: str | None = None,
        listen_url: str | None = None,
    ) -> None:
        self.url = place.name
        self.schema = DEFAULT_SCHEMA if schema is None else schema
        self.statements = Statements(quoted(self.schema))
        self.manner = Manner(place.name, quoted(self.schema))
        self._place = place
        self.tasks_only = place.tasks_only
        self.manner.prepared = place.prepared
        self._ear_place = place if listen_url is None else place.elsewhere(listen_url)
        self._driver: Any = None
        self._async_drivers: WeakSet[AsyncDriver] = WeakSet()

    @classmethod
    def from_url(
        cls, url: str, *, schema: str | None = None, listen_url: str | None = None
    ) -> PostgresStore:
        """A store by its URL; arguments win over the URL's own ``schema`` and ``listen_url``."""
        read = read_url(url)
        return cls(
            place_of_url(read.conninfo),
            schema=schema or read.schema,
            listen_url=listen_url or read.listen_url,
        )

    @classmethod
    def from_pool(
        cls, pool: Any, *, schema: str | None = None, listen_url: str | None = None
    ) -> PostgresStore:
        """A store in the database of a psycopg_pool pool, connected with that pool's settings."""
        return cls(place_of_pool(pool), schema=schema, listen_url=listen_url)

    @classmethod
    def from_asyncpg(
        cls, pool: Any, *, schema: str | None = None, listen_url: str | None = None
    ) -> PostgresStore:
        """A store in the database of an asyncpg pool, for tasks only."""
        from joblock.stores.postgres.asyncpg_place import place_of_asyncpg

        return cls(place_of_asyncpg(pool), schema=schema, listen_url=listen_url)

    @classmethod
    def from_engine(
        cls, engine: Any, *, schema: str | None = None, listen_url: str | None = None
    ) -> PostgresStore:
        """A store in the database of a SQLAlchemy Engine or AsyncEngine."""
        return cls(place_of_engine(engine), schema=schema, listen_url=listen_url)

    def driver(self) -> Any:
        """The blocking driver."""
        if self._driver is None:
            self._driver = self._place.driver(self.statements, self.manner, self.schema)
        return self._driver

    def async_driver(self) -> AsyncDriver:
        """A driver for the running event loop."""
        driver = self._place.async_driver(self.statements, self.manner, self.schema)
        self._async_drivers.add(driver)
        return driver

    def subscribe(self, client: str, deliver: Deliver, connected: Callable[[], None]) -> Ear:
        """Hear a client's notices, in a thread of its own."""
        hearing = Hearing(client, deliver, connected, self.statements.key_behind)
        where = None if self._ear_place is self._place else self._where
        return self._ear_place.ear(f"joblock:{ear(client)}", hearing, where)

    def listen_by(self, other: Any) -> bool:
        """Listen by another way to the same database, if it is one to PostgreSQL at all."""
        if not isinstance(other, PostgresStore):
            return False
        self._ear_place = other._ear_place  # noqa: SLF001
        return True

    def hand_notices_to(self, post: Callable[[Sequence[Notice]], None]) -> None:
        """See `joblock.store.contract.Handing`."""
        self.statements.hand_notices_to(post)

    def publish(self, notices: Sequence[Notice]) -> None:
        """See `joblock.store.contract.Notifier`."""
        self.driver().call(Tell(notices))

    def guard(self, key: str, holder: str, token: int) -> Statement:
        """See `joblock.store.contract.Guarding`."""
        values: dict[str, str | int] = {"key": key, "holder": holder, "token": token}
        return Statement(GUARD, values, ("postgresql",), place=quoted(self.schema))

    def _where(self) -> str:
        return self.driver().call(Where())

    def after_fork(self) -> None:
        """Leave the parent's connections alone."""
        if self._driver is not None:
            self._driver.after_fork()
        for driver in tuple(self._async_drivers):
            driver.after_fork()

    def close(self) -> None:
        """Hang up; a later call connects again. Event loops close their own (`aclose`)."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()
