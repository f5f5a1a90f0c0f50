"""Workers that start together and need a warm cache: one warms it, once, and all use it.

    python cache_warming.py cache/

Those who come while it is being warmed wait for that (`join`). For ten minutes after a run that
ended well the key is in grace: whoever comes then is told so at once, and finds the cache warm.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from joblock import JobLocks


def warm(cache: Path) -> None:
    """Compute what is dear, and put it in place in one step."""
    time.sleep(0.2)
    draft = cache / "prices.json.draft"
    draft.write_text(json.dumps({"pear": 3, "plum": 5}), encoding="utf-8")
    draft.rename(cache / "prices.json")
    with (cache / "warmed.log").open("a", encoding="utf-8") as log:
        log.write("warmed\n")


def main() -> None:
    """Warm the cache, or wait for whoever does; then use it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("--url", help="where the leases are kept; an SQLite file by default")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)

    with JobLocks(options.url) as locks:
        job = locks.job(
            name=lambda cache: f"warm:{cache.resolve()}", join=True, grace_period="10m"
        )(warm)
        print(job(options.cache).reason)
    print(json.loads((options.cache / "prices.json").read_text(encoding="utf-8"))["plum"])


if __name__ == "__main__":
    main()
