"""Promised times: each is measured, judged, and told in the last lines of a test run.

A test fails only for what a busy machine does not explain; that the promise was broken is told all the same.
"""

import os

# What a machine that has other work may add, before a test fails for it.
BUSY_S = 0.5
TOLD = []


def judge(what, measured_s, promise_s, room_s):
    """(a line for people, whether a test may go on)."""
    line = f"{what}: {measured_s * 1000:.0f} ms of {promise_s * 1000:.0f} ms promised"
    if measured_s <= promise_s:
        return f"{line}: kept", True
    if measured_s <= promise_s + room_s:
        return f"{line}: BROKEN, by less than the {room_s * 1000:.0f} ms that a busy machine may add", True
    return f"{line}: BROKEN", False


def bound(what, measured_s, promise_s, room_s=BUSY_S):
    """Holds a time to its promise. Without room (0) a test fails whenever it is broken."""
    line, may_go_on = judge(what, measured_s, promise_s, room_s)
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0].rpartition("/")[2]
    TOLD.append(f"{test}: {line}")
    assert may_go_on, line
