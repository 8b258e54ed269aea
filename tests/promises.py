"""Promised times: each is measured, and told in the last lines of a test run.

How long something takes says as much of what else the machine does as of the program. So a test fails for
time alone only where that is a hang: beyond ten times what was promised. With TROUPE_JUDGE=1 in the
environment, on a machine that does nothing else, whatever breaks a promise fails. tests/promises.h is the
same for C++.
"""

import os

HANG_TIMES = 10
# However little was promised: a busy machine may not let a process run for some seconds.
HANG_S = 10
TOLD = []  # by the test that runs; conftest.py takes them from here


def judge(line, measured, promise, hang):
    """(a line for people, whether a test may go on)."""
    if measured <= promise:
        return f"{line}: kept", True
    if measured > hang:
        return f"{line}: BROKEN, and beyond what a busy machine explains", False
    return f"{line}: BROKEN", os.environ.get("TROUPE_JUDGE") != "1"


def told(line, may_go_on):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0].rpartition("/")[2]
    TOLD.append(f"{test}: {line}")
    assert may_go_on, line


def bound(what, measured_s, promise_s):
    """Holds a time to its promise."""
    line = f"{what}: {measured_s * 1000:.0f} ms of {promise_s * 1000:.0f} ms promised"
    told(*judge(line, measured_s, promise_s, max(HANG_TIMES * promise_s, HANG_S)))


def ratio(what, measured, promise, broken=None):
    """The same of a number without a unit: times that were measured in one run, or the share of a core. From
    `broken` on, where that is less, it is as if what promises it were not there."""
    line = f"{what}: {measured:.3g} of {promise:.3g} promised"
    told(*judge(line, measured, promise, broken or HANG_TIMES * promise))
