"""Floor 6: the command line, `joblock`.

Only what every command needs is imported here: a `joblock run` is started every minute on every
replica, and what it loads is paid for each time.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from joblock.cli.exits import USAGE, by_signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    _let_interrupts_end_it()
    try:
        try:
            from joblock.cli.app import run
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "click":
                raise
            sys.stderr.write("joblock: the command line needs click: pip install 'joblock[cli]'\n")
            return USAGE
        return run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return by_signal(2)


def _let_interrupts_end_it() -> None:
    """Have Ctrl-C end the process as it ends any other: Python's own way is a traceback.

    `joblock run` takes the signal over once there is something to give back.
    """
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except ValueError:
        return  # not the main thread: whoever calls this has taken care of signals
