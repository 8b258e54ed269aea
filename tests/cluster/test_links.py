"""Links between nodes that break, are slow or lossy, and processes that stand still."""

import os
import signal
import time

import pytest

from promises import bound
from recovery import (LASTING, NOTICED_HUNG_S, ONE_REPLICA, SMALL, events_after, hurt, last_event, settled,
                      watched, worker_of)
from running import wait_until
from streams import Stream, Streams

THREE_STAGES = [*ONE_REPLICA, "--pipeline-parallel-size", 3, "--redundant-experts", 64, "--min-devices", 3]
# 2,001 tokens in one chunk.
LONG = {"prompt": [0, *(6 + at * 37 % 3900 for at in range(2000))], "max_tokens": 8, "temperature": 0,
        "ignore_eos": True, "logprobs": 0, "stream": True, "return_token_ids": True}  # fmt: skip


def counters(stage):
    return stage.status()["cluster"]["counters"]


# --- Connections that are reset ---------------------------------------------------------------


def test_resets_between_the_second_and_the_third_stage(namespaces, expected):
    """With the shards' answers to Undeliverable and PeerDown taken out, a stream stood still for 60 s."""
    stage = namespaces(*THREE_STAGES, workers=3)
    nodes = {node["id"]: node for node in stage.ready_nodes()}
    shards = stage.status()["replicas"][0]["shards"]
    stages = [worker_of(stage, nodes[shard["device"].split("/")[0]]) for shard in shards]
    assert len({worker.pid for worker in stages}) == 3
    streams = Streams(stage, LASTING[:3]).flow()
    began = time.monotonic()
    for _ in range(8):
        if not all(stream.flows() for stream in streams.streams):
            break
        stages[1].link.reset_pair(stages[2].link)
        time.sleep(0.25)
    streams.assert_unchanged(expected)
    bound("stall", streams.stall(began), 2)


# --- Links that are slow, lossy or bursty -----------------------------------------------------


@pytest.mark.parametrize("how", ["slow", "lossy", "bursty"])
def test_a_busy_link_is_not_a_dead_one(namespaces, how):
    stage = namespaces(*ONE_REPLICA, workers=2)
    if why := stage.network.cannot.get(how):
        pytest.skip(why)
    quick = Stream(stage, {"key": 0, "path": "/v1/completions", "body": LONG}).wait()
    assert quick.error is None
    for worker in stage.workers:
        getattr(worker.link, how)()
    slow = Stream(stage, {"key": 0, "path": "/v1/completions", "body": LONG | {"seed": 1}}).wait()
    assert slow.error is None, f"{slow.error}\n{stage.logs()}"
    assert slow.answer == quick.answer
    assert counters(stage)["lost"] == 0
    assert counters(stage)["unreachable_peers"] == 0


# --- Processes that stand still ---------------------------------------------------------------


def signal_all(pids, number):
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.long
@pytest.mark.parametrize("who", ["everybody", "the head"])
def test_standing_still_for_three_seconds_loses_nobody(stages, expected, who):
    stage = stages(*SMALL, workers=3)
    before = counters(stage), {node["id"]: node["incarnation"] for node in stage.ready_nodes()}
    head = [stage.head_process.pid]
    pids = head + [node["pid"] for node in stage.ready_nodes()] if who == "everybody" else head
    streams = Streams(stage, LASTING).flow()
    last = last_event(stage)
    signal_all(pids, signal.SIGSTOP)
    time.sleep(3)
    signal_all(pids, signal.SIGCONT)
    streams.assert_unchanged(expected)
    assert counters(stage)["lost"] == 0, stage.logs()
    assert {node["id"]: node["incarnation"] for node in stage.ready_nodes()} == before[1]
    assert stage.status()["requests"]["replayed"] == 0
    lost = ("node_lost", "lost", "peer_unreachable", "degraded")
    assert not [e for e in events_after(stage, last) if e["kind"] in lost]
    Streams(stage, LASTING[:2]).assert_unchanged(expected)


def test_one_worker_that_stands_still_is_fenced_and_comes_back(stages, expected):
    stage = stages(*SMALL, workers=3)
    victim = stage.ready_nodes()[1]
    with watched(stage, victim) as seen:
        streams = Streams(stage, LASTING).flow()
        _, began = hurt(stage, victim, signal.SIGSTOP)
        time.sleep(3)
        hurt(stage, victim, signal.SIGCONT)
        streams.assert_unchanged(expected)
    bound("noticed", seen.lost - began, NOTICED_HUNG_S)
    back = wait_until(
        lambda: [n for n in stage.ready_nodes() if n["pid"] == victim["pid"]], "it is back as new"
    )[0]
    assert back["incarnation"] > victim["incarnation"]
    settled(stage)
    assert counters(stage)["lost"] == 1
