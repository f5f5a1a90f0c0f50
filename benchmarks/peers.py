"""Make the peers' environments, once: ``python -m benchmarks.peers [NAME...]``.

Each peer gets one of its own below ``.venv-peers``: some of them share the name of a package, and
none is to decide which version of a driver joblock is measured with. A peer that cannot be
installed is left out of the measurements, and said so.
"""

from __future__ import annotations

import subprocess
import sys
import venv

from benchmarks.contenders import ENVIRONMENTS, load, mark, names, python, requires

PATIENCE = 300
"""Seconds that installing one peer may take."""


def main(chosen: list[str]) -> None:
    for name in chosen or names():
        if python(name) is None:
            problem = make(name)
            print(f"{name}: {problem or 'installed'}", flush=True)


def make(name: str) -> str:
    """Install one peer into an environment of its own; what went wrong, or nothing."""
    contender = load(name)
    place = ENVIRONMENTS / name
    venv.create(place, clear=True, symlinks=True)
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--python", str(place / "bin" / "python")),
                *("install", "--quiet", "--disable-pip-version-check", *requires(contender)),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not installed within {PATIENCE} s"
    if done.returncode:
        return f"not installed: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
    (place / "made").write_text(mark(contender))
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
