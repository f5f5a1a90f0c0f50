"""Run by `doc_sessions.PythonSession`: executes the blocks that come through a pipe."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback


def main() -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    with open(int(sys.argv[1]), encoding="utf-8") as blocks:  # noqa: PTH123 - a descriptor has no path
        for line in blocks:
            page, first, source = json.loads(line)
            printed, trace = io.StringIO(), ""
            with contextlib.redirect_stdout(printed):
                try:
                    # Blank lines before it give a traceback the page's own line numbers.
                    code = compile("\n" * (first - 1) + source, page, "exec")
                    exec(code, namespace)  # noqa: S102
                except BaseException:  # noqa: BLE001 - told to the test, which fails
                    trace = traceback.format_exc()
            os.write(1, json.dumps([printed.getvalue(), trace]).encode() + b"\n")


main()
