"""`python -m joblock.cli`, for where the script is not on the PATH."""

from __future__ import annotations

import sys

from joblock.cli import main

sys.exit(main())
