"""Jobs at module level, as an application has them: something to import by name."""

from __future__ import annotations

import functools
from typing import Any

from joblock import AsyncJobLocks, JobLocks

locks = JobLocks("memory://jobs in a module")
aio_locks = AsyncJobLocks("memory://jobs in a module")


@locks.job
def plain(number: int, *, twice: bool = False) -> int:
    """Add one."""
    return (number + 1) * (2 if twice else 1)


@aio_locks.job(name="a coroutine")
async def coroutine(number: int) -> int:
    """Add one, too."""
    return number + 1


class Base:
    """Jobs of every kind of method."""

    name = "base"

    @locks.job(name=lambda self, word: f"method:{self.name}:{word}")
    def method(self, word: str) -> tuple[Any, str]:
        """A method."""
        return self, word

    @locks.job()
    @classmethod
    def of_class(cls, word: str) -> tuple[Any, str]:
        """A class method."""
        return cls, word

    @locks.job()
    @staticmethod
    def static(word: str) -> str:
        """A static method."""
        return word

    @aio_locks.job()
    async def coroutine(self, word: str) -> tuple[Any, str]:
        """A coroutine method."""
        return self, word


class Derived(Base):
    """Inherits the jobs, and calls one it overrides."""

    name = "derived"

    def overridden(self) -> Any:
        """Through the instance."""
        return self.method("over").value


partial = locks.job(name="a partial")(functools.partial(lambda a, b: a + b, 1))
