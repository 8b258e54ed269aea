"""What crashes workers is found on evidence, and nothing else is suspected.

With a strike at every loss the long prompt fails after two kills.
"""

import signal
import time

import pytest

from recovery import (LASTING, SMALL, event_after, events_after, hosts_of_running, hurt, last_event,
                      settled)
from running import DEMO, PATIENCE_S, TESTING, Cluster, alive, pids_marked, wait_until
from stage import Watcher
from streams import Missed, Stream, Streams, arranged

POISON = 11  # <｜tool▁sep｜>: no other prompt or answer has it
# What it takes to convict in company, and crashes whose word came after the next one.
CRASHES_MAX = 8


def long_prompt(key, *tokens):
    prompt = [0, *(6 + i * 7 % 3900 for i in range(3900)), *tokens]
    body = {"prompt": prompt[-3900:], "max_tokens": 4, "temperature": 0, "stream": False,
            "return_token_ids": True}  # fmt: skip
    return {"key": key, "path": "/v1/completions", "body": body}


@pytest.mark.parametrize("with_company", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_request_that_crashes_workers_is_given_up(troupe, expected, monkeypatch, with_company):
    monkeypatch.setenv("TROUPE_TEST_CRASH_TOKEN", str(POISON))
    with Cluster() as cluster:
        cluster.up(DEMO, *SMALL, workers=2, program=TESTING)
        company = Streams(cluster, LASTING).flow() if with_company else None
        poison = Stream(cluster, {"key": 0, "path": "/v1/completions", "body": {
            "prompt": [0, 105, POISON, 103], "max_tokens": 4, "stream": False}})  # fmt: skip
        poison.wait()
        assert poison.status == 500 and "crashed" in poison.error, (poison.error, cluster.logs())
        assert "SIGILL" in poison.error and poison.error.endswith("."), poison.error
        if company:
            company.assert_unchanged(expected)
        assert 2 <= cluster.status()["cluster"]["counters"]["lost"] <= CRASHES_MAX
        cluster.wait_ready()
        Stream(cluster, LASTING[0]).wait()
        assert cluster.status()["requests"]["failed"] == 1


def kill_ten_times(cluster, watcher):
    """A request whose replicas are killed so often; it is not at its end."""
    stream, killed = Stream(cluster, long_prompt(0)), set()
    end = time.monotonic() + 3 * PATIENCE_S
    while len(killed) < 10:
        assert time.monotonic() < end, f"{len(killed)} kills\n{cluster.logs()}"
        if not stream.flows():
            assert stream.error is None, f"{stream.error} after {len(killed)} kills\n{cluster.logs()}"
            raise Missed(f"it was answered after {len(killed)} kills")
        watcher.look()
        for host in hosts_of_running(watcher.status):
            if host["pid"] not in killed and alive(host["pid"]):
                killed.add(host["pid"])
                hurt(cluster, host)
        time.sleep(0.01)
    return stream


@pytest.mark.long
def test_a_long_prompt_survives_ten_kills(troupe):
    # The plain kernels need seconds for such a prompt, so that every kill comes before a token.
    with Cluster() as cluster:
        cluster.up(DEMO, *SMALL, "--numerics", "reference", workers=3)
        watcher = Watcher(cluster, 0.02)
        try:
            stream = arranged(lambda: kill_ten_times(cluster, watcher))
        finally:
            watcher.close()
        stream.wait()
        assert stream.error is None, stream.error
        assert cluster.status()["requests"]["failed"] == 0


def test_a_signal_that_somebody_sent_is_no_crash(stages):
    """It ends the worker as it would have without a handler, and nobody is told anything else."""
    stage = stages(*SMALL)
    for number in (signal.SIGSEGV, signal.SIGABRT):
        worker = stage.workers[-1]
        node = next(n for n in stage.ready_nodes() if n["pid"] == worker.pid)
        last, _ = hurt(stage, node, number)
        assert worker.process.exit_code() == -number
        event_after(stage, "node_lost", last, node["id"])
        time.sleep(1)
        assert "crashed" not in str(stage.status()["events"]), stage.status()["events"]
        stage.workers.remove(worker)
        stage.add_worker()
        wait_until(lambda: len(stage.ready_nodes()) == 2, "a new one is used")
        settled(stage)


def test_a_crash_is_told_and_ends_the_process_honestly(stages):
    stage = stages(*SMALL, workers=0)
    stage.env["TROUPE_TEST_CRASH_TOKEN"] = str(POISON)
    worker = stage.add_worker(program=TESTING)
    stage.wait_ready()
    last = last_event(stage)
    crash = Stream(stage, {"key": 0, "path": "/v1/completions", "body": {
        "prompt": [0, POISON], "max_tokens": 1, "stream": False}})  # fmt: skip
    assert worker.process.exit_code() == -signal.SIGILL
    stage.workers.remove(worker)
    event = wait_until(
        lambda: [e for e in events_after(stage, last) if "SIGILL" in e["text"]],
        "the head hears of it")[0]  # fmt: skip
    assert event["kind"] in ("node_crashed", "node_lost"), event
    crashed = [pid for pid in pids_marked(stage.mark.encode()) if "crash-report" in words_of(pid)]
    wait_until(lambda: not any(map(alive, crashed)), "nothing is left of the report")
    assert crash.thread.is_alive(), "a request failed for one crash"


def words_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as words:
            return words.read().decode(errors="replace")
    except OSError:
        return ""
