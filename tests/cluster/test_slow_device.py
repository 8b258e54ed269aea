"""A worker that gets little of its processor, as beside a busy neighbour."""

import concurrent.futures
import threading
import time

import pytest

from promises import bound
from recovery import held_to
from running import DEMO, PATIENCE_S, wait_until


def request(key):
    return {"prompt": [0, 105, 103, 96 + key, 101], "max_tokens": 48, "temperature": 1, "seed": key,
            "ignore_eos": True, "return_token_ids": True}  # fmt: skip


@pytest.mark.long
@pytest.mark.alone
def test_a_device_that_has_become_slow(cluster):
    """Known as slow within 10 s of work; the tokens stay the same."""
    cluster.head(DEMO, "--min-devices", 3, "--kv-cache-memory", "128MiB")
    cluster.wait_joinable()
    for _ in range(3):
        cluster.worker()
    cluster.wait_ready()

    def answer(key):
        return cluster.complete(**request(key))["choices"][0]["token_ids"]

    expected = {key: answer(key) for key in range(8)}
    over = threading.Event()

    def ask(key):
        count = 0
        while not over.is_set():
            assert answer(key) == expected[key]
            count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask, key) for key in range(8)]
        try:
            time.sleep(6)  # their usual speed is known then
            victim = cluster.ready_nodes()[1]

            def told():
                return any(event["kind"] == "device_slow" and victim["id"] in event["text"]
                           for event in cluster.status()["events"])  # fmt: skip

            with held_to(0.075, [victim["pid"]], period_s=0.02):
                began = time.monotonic()
                wait_until(told, "the slow device is found out", 3 * PATIENCE_S)
                bound("found out", time.monotonic() - began, 15)
        finally:
            over.set()
        assert all(one.result(2 * PATIENCE_S) > 0 for one in asking)
