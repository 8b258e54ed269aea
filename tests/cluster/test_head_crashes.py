"""A request that crashes the head would do so in each life: it is given up, and no other is."""

import os
import re
import signal
import time

from recovery import LASTING
from running import PATIENCE_S, TESTING, wait_until
from test_head_dies import FLAGS, Asker, askers, assert_answered

POISON = 11  # <｜tool▁sep｜>: no other answer has it


def live_on(stage, until):
    """Starts the head again whenever it has crashed; how often it did."""
    crashes, end = 0, time.monotonic() + 3 * PATIENCE_S
    while not until():
        assert time.monotonic() < end, stage.logs()
        if stage.head_process.popen.poll() is not None:
            assert stage.head_process.exit_code() == -signal.SIGILL, stage.logs()
            stage.start_head()
            crashes += 1
        time.sleep(0.02)
    return crashes


def test_a_request_that_crashes_the_head_is_given_up(stages, expected, monkeypatch):
    monkeypatch.setenv("TROUPE_TEST_HEAD_CRASH_TOKEN", str(POISON))
    stage = stages(*FLAGS, program=TESTING)
    asked = askers(stage, LASTING, "h", 6)
    wait_until(lambda: all(asker.tokens > 3 for asker in asked), "tokens come")
    body = {"prompt": [0, 105, 103], "max_tokens": 4, "logit_bias": {str(POISON): 100}, "temperature": 0,
            "stream": False}  # fmt: skip
    # A disk that hangs: a head's last words wait there for a reader, and the head for nobody.
    crashes = stage.state_dir / "journal" / "crashes"
    os.mkfifo(crashes, 0o600)
    poison = Asker(stage, {"key": 0, "path": "/v1/completions", "body": body}, "poison")
    assert stage.head_process.exit_code() == -signal.SIGILL, stage.logs()
    words = crashes.read_text()
    crashes.unlink()
    crashes.write_text(words)
    stage.start_head()
    assert 1 + live_on(stage, lambda: poison.error) == 3
    assert poison.error.startswith("500 ") and "crashed 3 times in a row" in poison.error, poison.error
    assert "SIGILL" in poison.error
    assert_answered(stage, asked, expected)
    assert re.search(r"at work on the request cmpl-\w+, which is given up\.", stage.head_process.log())
    assert all(worker.alive() for worker in stage.workers)
