"""The devices that a worker computes with."""

import json
import os
from pathlib import Path

import pytest

from running import DEMO, TESTING, Cluster, generate, run

TWO_PROCESSORS = len(os.sched_getaffinity(0)) >= 2


@pytest.fixture
def two_nodes(tmp_path):
    """What a machine tells of two NUMA nodes, of a processor each."""
    for node, processor in enumerate(sorted(os.sched_getaffinity(0))[:2]):
        folder = tmp_path / "nodes" / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{processor}\n")
        (folder / "meminfo").write_text(f"Node {node} MemTotal:   1000000 kB\n")
    return {"TROUPE_TEST_NUMA_NODES": str(tmp_path / "nodes")}


def bound_to(pid):
    """The sets of processors that its threads are bound to."""
    found = set()
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        text = status.read_text()
        found.add(text.split("Cpus_allowed_list:")[1].split()[0])
    return found


def answer_of(cluster):
    choice = cluster.complete("Define blorft.", max_tokens=24, temperature=0, return_token_ids=True)
    return choice["choices"][0]["token_ids"]


@pytest.fixture(scope="module")
def expected():
    return generate(DEMO, "--prompt", "Define blorft.", "--max-tokens", 24, "--temperature", 0)["tokens"]


def test_a_device_of_a_numa_node_has_its_memory(troupe, expected):
    with Cluster() as cluster:
        cluster.head(DEMO, "--min-devices", 1)
        cluster.wait_answers()
        worker = cluster.worker("--device", "cpu:0")
        cluster.wait_ready()
        assert answer_of(cluster) == expected
        maps = Path(f"/proc/{worker.pid}/numa_maps").read_text()
        assert "prefer:0" in maps or "prefer=relative:0" in maps, maps


@pytest.mark.skipif(not TWO_PROCESSORS, reason="there is one processor")
def test_tensor_parallel_ranks_on_the_numa_nodes_of_a_worker(troupe, expected, two_nodes):
    with Cluster() as cluster:
        cluster.head(DEMO, "--min-devices", 2, "--tensor-parallel-size", 2)
        cluster.wait_answers()
        worker = cluster.start("worker", "--head", f"127.0.0.1:{cluster.control_port}", "--device", "cpu:0,1",
                               env=two_nodes, program=TESTING)  # fmt: skip
        cluster.wait_ready()
        assert answer_of(cluster) == expected
        status = cluster.status()
        (node,) = cluster.ready_nodes()
        assert [d["memory_total"] for d in node["devices"]] == [1000000 << 10] * 2
        devices = [shard["device"] for shard in status["replicas"][0]["shards"]]
        assert len(set(devices)) == 2, json.dumps(status["replicas"])
        first, second = (str(p) for p in sorted(os.sched_getaffinity(0))[:2])
        assert {first, second} <= bound_to(worker.pid)


@pytest.mark.skipif(not TWO_PROCESSORS, reason="there is one processor")
def test_up_deals_the_devices_out_to_its_workers(troupe, expected, two_nodes):
    with Cluster() as cluster:
        words = ["up", "--workers", 2, *cluster._head_words(DEMO), "--device", "cpu:1,0"]
        cluster.start(*words, env=two_nodes, program=TESTING)
        cluster.wait_ready()
        assert answer_of(cluster) == expected
        nodes = cluster.ready_nodes()
        assert [len(node["devices"]) for node in nodes] == [1, 1]
        first, second = (str(p) for p in sorted(os.sched_getaffinity(0))[:2])
        each = [bound_to(node["pid"]) & {first, second} for node in nodes]
        assert sorted(each, key=sorted) == sorted([{first}, {second}], key=sorted)


@pytest.mark.parametrize(
    "device, words",
    [
        ("cpu:0,1,0", "names 0 twice"),
        ("cpu:77", "no NUMA node 77"),
        ("cpu:", "cuda:0,1 (GPUs)"),
        ("cpu:0,", "not 'cpu:0,'"),
        ("cpu:-1", "not 'cpu:-1'"),
        ("cpu:0x1", "not 'cpu:0x1'"),
        ("cpu:99999999999", "not 'cpu:99999999999'"),
        ("auto:0", "not 'auto:0'"),
        ("cuda:1,1", "names 1 twice"),
        ("cuda-twin:0,0", "--device cuda-twin:0,0 names 0 twice"),
        ("cuda-twin:2,1,02", "names 2 twice"),
        ("cuda-twin:x", "not 'cuda-twin:x'"),
        ("cuda-twin", "is a test double that build/troupe-testing has, not this program: use cpu or cuda."),
        ("", "not ''"),
    ],
)
def test_lists_that_are_none(troupe, tmp_path, device, words):
    done = run("generate", "--model", DEMO, "--prompt", "a", "--device", device)
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a driver")
def test_a_gpu_where_there_is_none(troupe):
    done = run("generate", "--model", DEMO, "--prompt", "a", "--device", "cuda:1")
    assert done.returncode == 1, done.stderr
    assert "built without CUDA" in done.stderr or "driver" in done.stderr, done.stderr


def test_two_twins_of_gpus_in_one_worker(troupe, expected):
    with Cluster() as cluster:
        cluster.head(DEMO, "--min-devices", 2, "--tensor-parallel-size", 2)
        cluster.wait_answers()
        cluster.worker("--device", "cuda-twin:0,3", program=TESTING)
        cluster.wait_ready()
        assert answer_of(cluster) == expected
        (node,) = cluster.ready_nodes()
        assert [device["kind"] for device in node["devices"]] == ["cuda-twin"] * 2


def test_more_workers_than_devices(troupe, tmp_path):
    done = run(
        "up", "--model", DEMO, "--workers", 2, "--device", "cpu:0", "--state-dir", tmp_path / "state"
    )
    assert done.returncode == 2 and "give --workers 1" in done.stderr, done.stderr
