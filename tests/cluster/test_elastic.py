"""Elastic membership: joins, drains and rebalances under load, bit for bit."""

import threading
import time

from promises import bound
from recovery import (MIXED, SMALL, event_after, experts_on, hosts_of_replicas, hurt, last_event, settled,
                      worker_of)
from running import PATIENCE_S, run, wait_until
from streams import Steady


def drain(stage, node_id, seconds=2 * PATIENCE_S):
    return run("drain", node_id, env=stage.env, seconds=seconds)


def test_growing_and_shrinking_under_load(stages, expected):
    stage = stages(*SMALL, workers=1)
    with Steady(stage, MIXED, expected) as load:
        load.go_on(4)
        for count in (2, 3, 4):
            stage.add_worker()
            wait_until(lambda: len(stage.ready_nodes()) == count, "the new one is used")
            load.go_on(4)
        status = settled(stage)
        assert all(experts_on(status, node["id"]) > 0 for node in status["nodes"] if node["state"] == "ready")
        assert len(status["replicas"]) > 1
        for count in (3, 2, 1):
            node = stage.ready_nodes()[-1]
            done = drain(stage, node["id"])
            assert done.returncode == 0, done.stderr
            load.go_on(4)
            assert len(stage.ready_nodes()) == count
    assert stage.status()["requests"]["failed"] == 0


def test_a_new_worker_is_used_within_seconds(stages, expected):
    stage = stages(*SMALL, workers=1)
    with Steady(stage, MIXED, expected) as load:
        load.go_on(4)
        worker = stage.add_worker()

        def used():
            status = stage.status()
            node = [n for n in status["nodes"] if n["pid"] == worker.pid]
            return node and experts_on(status, node[0]["id"]) > 0

        began = time.monotonic()
        wait_until(used, "it has experts")
        bound("a new worker has experts", time.monotonic() - began, 5)


def test_drain_under_load(stages, expected):
    stage = stages(*SMALL, workers=3)
    node = stage.ready_nodes()[0]
    worker = worker_of(stage, node)
    with Steady(stage, MIXED, expected) as load:
        load.go_on(4)
        done = drain(stage, node["id"])
        assert done.returncode == 0, done.stderr
        told = done.stdout + done.stderr
        assert " of " in told and "left" in told and "lost" not in told, told
        status = stage.status()
        assert experts_on(status, node["id"]) == 0 and node["id"] not in hosts_of_replicas(status)
        worker.kill()  # it may be switched off now
        load.go_on(8)
    requests = stage.status()["requests"]
    assert requests["failed"] == 0
    assert stage.status()["cluster"]["counters"]["lost"] == 0


def test_drains_that_are_refused(stages):
    stage = stages(*SMALL, workers=1)
    (last,) = stage.ready_nodes()
    for node_id, word in ((last["id"], "last"), ("node-99", "node-99")):
        done = drain(stage, node_id)
        assert done.returncode == 1 and word in done.stderr, done.stderr
        assert done.stderr.startswith("troupe: ") and done.stderr.count("\n") == 1, done.stderr
    assert drain(stage, "gibberish").returncode in (1, 2)
    assert len(stage.ready_nodes()) == 1
    stage.complete("brandy", max_tokens=4)


def test_a_drain_that_is_asked_for_twice(stages):
    stage = stages(*SMALL, workers=2)
    node = stage.ready_nodes()[0]
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(drain(stage, node["id"]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 in [answer.returncode for answer in answers], answers
    again = drain(stage, node["id"])
    assert again.returncode == 1 and node["id"] in again.stderr
    wait_until(lambda: len(stage.ready_nodes()) == 1, "one is left")
    stage.complete("brandy", max_tokens=4)


def test_the_drained_node_is_killed_meanwhile(stages, expected):
    stage = stages(*SMALL, workers=3)
    node = stage.ready_nodes()[0]
    with Steady(stage, MIXED, expected) as load:
        load.go_on(4)
        thread = threading.Thread(target=drain, args=(stage, node["id"]))
        last = last_event(stage)
        thread.start()
        event_after(stage, "drain", last)
        hurt(stage, node)
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the drain of a dead node does not end"
        load.go_on(8)


def test_rebalance_while_tokens_flow(stages, expected):
    stage = stages(*SMALL, "--redundant-experts", 8, workers=3)
    with Steady(stage, MIXED, expected) as load:
        load.go_on(12)
        last = last_event(stage)
        done = run("rebalance", env=stage.env)
        assert done.returncode == 0, done.stderr
        load.go_on(4)
        event_after(stage, "rebalance", last)
        load.go_on(8)
    status = settled(stage)
    assert status["requests"]["failed"] == status["requests"]["replayed"] == 0
    assert status["experts"]["last_rebalance_s"] is not None


def test_rebalance_without_workers_is_refused(stages):
    stage = stages(*SMALL, workers=0)
    done = run("rebalance", env=stage.env)
    assert done.returncode == 1 and done.stderr.startswith("troupe: "), done.stderr
