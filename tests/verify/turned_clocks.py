"""Servers whose wall clock can be set while they run, by libfaketime."""

from __future__ import annotations

import tempfile
from pathlib import Path

import postgres_servers
import redis_servers


def library() -> str:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    assert found, "libfaketime is missing: apt-get install faketime"
    return str(found[0])


class Clock:
    """What the server's clock is off by."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="joblock-clock-")
        Path(self._folder.name).chmod(0o755)  # the server may be another user's
        self._file = Path(self._folder.name) / "offset"
        self.offset = 0.0
        self.step(0)

    @property
    def settings(self) -> tuple[str, ...]:
        """What a server's command is put behind."""
        return (
            "env",
            f"LD_PRELOAD={library()}",
            f"FAKETIME_TIMESTAMP_FILE={self._file}",
            "FAKETIME_NO_CACHE=1",
            "DONT_FAKE_MONOTONIC=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )

    def step(self, seconds: float) -> None:
        """Set it forward, or back."""
        self.offset += seconds
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{self.offset:+.3f}")
        fresh.chmod(0o644)
        fresh.replace(self._file)

    def close(self) -> None:
        self._folder.cleanup()


class TurnedValkey(redis_servers.Server):
    """Debian's Redis brings jemalloc, with which libfaketime hangs at the start."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.before = self.clock.settings
        super().__init__(redis_servers.valkey_binary(), folder)

    def now(self) -> float:
        seconds, micros = self.ask("TIME")
        return int(seconds) + int(micros) / 1e6

    def remove(self) -> None:
        self.stop()
        self.clock.close()


class TurnedPostgres(postgres_servers.Server):
    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__()

    def spawn(self, *command: str):
        return super().spawn(*self.clock.settings, *command)

    def now(self) -> float:
        ((now,),) = self.run("select extract(epoch from clock_timestamp())::float8")
        return now

    def remove(self) -> None:
        super().remove()
        self.clock.close()
