"""A core or kernel that computes wrongly is found by known answers: real processes, a debug hook."""

import os
import time

import pytest
from promises import bound, ratio
from recovery import SMALL
from running import DEMO, PATIENCE_S, TESTING, Cluster, wait_until


def broken_worker(cluster, breakage):
    return cluster.start("worker", "--head", f"127.0.0.1:{cluster.control_port}", "--threads", 1,
                         env={"TROUPE_TEST_BREAK": breakage}, program=TESTING)  # fmt: skip


def answer(cluster, key):
    body = {"prompt": [0, 105, 103, 96 + key, 101], "max_tokens": 48, "temperature": 1, "seed": key,
            "ignore_eos": True, "return_token_ids": True}  # fmt: skip
    return cluster.complete(**body)["choices"][0]["token_ids"]


def test_a_worker_that_is_broken_at_the_start_says_so_and_is_not_taken(cluster):
    cluster.head(DEMO, *SMALL, "--min-devices", 1)
    cluster.wait_joinable()
    for op in ("linear", "attention"):
        worker = broken_worker(cluster, op)
        assert worker.exit_code() != 0
        assert f"{op} (" in worker.log() and "gave a wrong result on core " in worker.log(), worker.log()
    assert not cluster.status()["nodes"]
    cluster.worker()
    cluster.wait_ready()
    assert len(answer(cluster, 1)) == 48


def test_a_device_that_breaks_later_is_taken_out_and_the_rest_serves_the_same_tokens(cluster):
    with Cluster() as whole:
        whole.up(DEMO, *SMALL, workers=1)
        expected = {key: answer(whole, key) for key in range(4)}
    cluster.head(DEMO, *SMALL, "--min-devices", 3, "--redundant-experts", 32)
    cluster.wait_joinable()
    for _ in range(2):
        cluster.worker()
    # It breaks 8 s after it became a member; its round of questions takes 4 s instead of a minute.
    broken = broken_worker(cluster, "expert_mlp:8:4")
    cluster.wait_ready()
    victim = next(node for node in cluster.status()["nodes"] if node["pid"] == broken.pid)

    def found():
        return [event["text"] for event in cluster.status()["events"] if event["kind"] == "device_failed"]

    began = time.monotonic()
    text = wait_until(found, "the broken device is found", 2 * PATIENCE_S)[0]
    bound("the broken device is found", time.monotonic() - began, 8 + 4 + 10)
    assert victim["id"] in text and "expert_mlp (" in text and "its last right one was" in text, text

    def taken_out():
        status = cluster.status()
        used = {slot["device"] for layer in status["experts"]["placement"] for slot in layer["slots"]}
        used |= {shard["device"] for replica in status["replicas"] for shard in replica["shards"]}
        return status["cluster"]["state"] == "ready" and not any(
            device.startswith(f"{victim['id']}/") for device in used)  # fmt: skip

    wait_until(taken_out, "nothing is on the broken device")
    assert {key: answer(cluster, key) for key in range(4)} == expected


def test_a_breakage_that_makes_no_sense_is_refused(cluster):
    cluster.head(DEMO, *SMALL)
    cluster.wait_joinable()
    for text in ("abacus", "linear:soon", "linear:1:0", "linear:1:2:3"):
        worker = broken_worker(cluster, text)
        assert worker.exit_code() == 2
        assert "TROUPE_TEST_BREAK" in worker.log()


@pytest.mark.long
def test_the_check_costs_less_than_a_hundredth_of_a_core(cluster):
    cluster.up(DEMO, *SMALL, workers=1)
    node = cluster.ready_nodes()[0]
    tick = os.sysconf("SC_CLK_TCK")

    def spent():
        fields = open(f"/proc/{node['pid']}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / tick

    time.sleep(2)  # what it still does for its start
    before, began = spent(), time.monotonic()
    time.sleep(10)
    ratio("an idle worker's share of a core", (spent() - before) / (time.monotonic() - began), 0.01)
