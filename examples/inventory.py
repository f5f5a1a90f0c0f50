"""Stock that many workers change: one change of a product at a time, and none is lost or dropped.

    python inventory.py stock/ pear --times 20

`wait=True` queues each change, in the order of arrival. The warehouse wants a pause after each, so
a run leaves the key in grace, and `in_grace="wait"` waits that out, where a job else would skip.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from joblock import JobLocks


def change(stock: Path, product: str, by: int) -> int:
    """Read, change, write: what two at a time would get wrong."""
    file = stock / f"{product}.txt"
    count = int(file.read_text(encoding="utf-8")) if file.exists() else 0
    file.write_text(f"{count + by}\n", encoding="utf-8")
    return count + by


def main() -> None:
    """Change the stock of one product, some times over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stock", type=Path)
    parser.add_argument("product")
    parser.add_argument("--by", type=int, default=1)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--url", help="where the leases are kept; an SQLite file by default")
    options = parser.parse_args()
    options.stock.mkdir(parents=True, exist_ok=True)

    with JobLocks(options.url) as locks:
        job = locks.job(
            name=lambda stock, product, by: f"stock:{product}",
            wait=True,
            in_grace="wait",
            grace_period="5ms",
        )(change)
        for _ in range(options.times):
            print(job.call(options.stock, options.product, options.by))


if __name__ == "__main__":
    main()
