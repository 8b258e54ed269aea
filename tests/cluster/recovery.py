"""What the tests of recovery and of elastic membership share."""

import contextlib
import os
import signal
import threading
import time
import types

from answers import make_requests
from notice import Notices
from running import PATIENCE_S, cpu_families_here, wait_until

# Kept small, so that a worker starts within milliseconds.
SMALL = ["--kv-cache-memory", "128MiB"]
ONE_REPLICA = [*SMALL, "--data-parallel-size", 1]
ALL_TWICE = ["--redundant-experts", 32]
# The promised times. Where experts must be loaded a stall lasts as long as that, and a little.
NOTICED_KILLED_S = 0.05
NOTICED_HUNG_S = 1.5
STALL_S = 0.25
BEYOND_LOADING_S = 0.3
LOADING_S = 0.5  # of the demo, all of it, from the page cache


# So many last for a second or more: processors with AVX-512 are twice as fast.
LASTING_TOKENS = 1000 if "avx512" in cpu_families_here() else 500


def lasting(key):
    """A stream of some time, in which any wrong bit shows."""
    body = {"prompt": [0, 105, 103, 96 + key, 101], "max_tokens": LASTING_TOKENS, "temperature": 1,
            "top_p": 1, "seed": 40 + key, "ignore_eos": True, "logprobs": 0, "stream": True,
            "return_token_ids": True}  # fmt: skip
    return {"key": 1000 + key, "path": "/v1/completions", "body": body}


LASTING = [lasting(key) for key in range(6)]
MIXED = make_requests(7, 16)


def settled(stage, seconds=PATIENCE_S):
    """Nothing is being loaded or moved any more."""
    calm = []

    def look():
        status = stage.status_or_none()
        quiet = status and status["cluster"]["state"] == "ready" and not status["experts"]["moves_pending"]
        calm.append(time.monotonic()) if quiet else calm.clear()
        return calm and calm[-1] - calm[0] > 0.3

    try:
        wait_until(look, "everything is where it belongs", seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{stage.logs()}") from None
    return stage.status()


def worker_of(stage, node):
    return next(worker for worker in stage.workers if worker.pid == node["pid"])


def hosts_of_replicas(status):
    return {shard["device"].split("/")[0] for replica in status["replicas"] for shard in replica["shards"]}


def hosts_of_running(status):
    """The nodes of replicas that run a sequence now."""
    devices = {
        shard["device"].split("/")[0]
        for replica in status["replicas"] if replica["running"] for shard in replica["shards"][:1]
    }  # fmt: skip
    return [node for node in status["nodes"] if node["id"] in devices and node["state"] == "ready"]


def node_with_replica(stage, has=True):
    status = stage.status()
    hosts = hosts_of_replicas(status)
    return next(node for node in status["nodes"] if node["state"] == "ready" and (node["id"] in hosts) == has)


def experts_on(status, node_id):
    return sum(
        slot["device"].startswith(f"{node_id}/")
        for layer in status["experts"]["placement"] for slot in layer["slots"]
    )  # fmt: skip


def last_event(stage):
    """The newest event: what comes behind it is later, whatever a clock of the wall does meanwhile."""
    return ((stage.status_or_none() or {}).get("events") or [None])[-1]


def events_after(stage, last):
    """Those behind that one; all of them if there was none, or of a head that is newer than it."""
    events = (stage.status_or_none() or {"events": []})["events"]
    return events[events.index(last) + 1:] if last in events else events


def event_after(stage, kind, last, *words, seconds=PATIENCE_S):
    """The first event of a kind behind that one that has these words."""

    def find():
        return [e for e in events_after(stage, last)
                if e["kind"] == kind and all(word in e["text"] for word in words)]  # fmt: skip

    try:
        return wait_until(find, f"an event {kind} {words}", seconds)[0]
    except AssertionError as error:
        raise AssertionError(f"{error}\n{stage.status_or_none()}\n{stage.logs()}") from None


def hurt(stage, node, number=signal.SIGKILL):
    """A signal to a node's process. -> the last event before, when by the monotonic clock"""
    last = last_event(stage)
    began = time.monotonic()
    os.kill(node["pid"], number)
    return last, began


@contextlib.contextmanager
def watched(stage, node):
    """A client that looks on while a node is lost. Gives what it has seen, in the end: `lost`, when that
    showed, and `loading_s`, from then until the cluster served in full again."""
    notices = Notices(stage.http_port, PATIENCE_S)
    seen = types.SimpleNamespace()
    try:
        assert notices.begin(0, [node["pid"]]), "it is no member"
        yield seen
        told = notices.end(0)
        assert told["lost"] and told["again"], f"nothing was to be seen of it in {PATIENCE_S} s"
        seen.lost = told["lost"][node["pid"]]
        seen.loading_s = told["again"] - seen.lost
    finally:
        notices.close()


@contextlib.contextmanager
def held_to(share, pids, period_s=0.05):
    """Processes that run for that share of the time only."""
    done = threading.Event()

    def hold():
        while not done.wait(share * period_s):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep((1 - share) * period_s)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
