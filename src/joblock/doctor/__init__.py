"""Can this store keep what joblock promises? The checks behind `joblock doctor`.

    from joblock.doctor import examine

    report = examine("redis://cache:6379/0")
    assert report.holds, report.findings

How each kind of store is set up is looked at by the module of its name. What all stores have in
common (a lease can be had and given back, clocks, notices) is tried out by `joblock.doctor.trial`.
"""

from __future__ import annotations

from joblock.doctor.examine import examine as examine
from joblock.doctor.report import Finding as Finding
from joblock.doctor.report import Report as Report
from joblock.doctor.report import Severity as Severity
