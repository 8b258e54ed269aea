"""How a cluster forms, what it refuses, and how it ends."""

import json
import shutil
import signal
import socket
import time

import pytest

from promises import bound
from running import DEMO, V3, Cluster, free_port, listening_ports, run, wait_until


def join_file(cluster):
    return cluster.state_dir / "join"


def with_join_file(cluster, make=DEMO):
    """A head that has written its join file."""
    head = cluster.head(make)
    wait_until(join_file(cluster).exists, "the head writes its join file")
    return head


def refused(worker, *words):
    """A worker that ends with exit code 1 and one sentence which has these words."""
    assert worker.exit_code() == 1, worker.log()
    last = worker.log().strip().splitlines()[-1]
    assert last.startswith("troupe: ") and last.endswith("."), worker.log()
    for word in words:
        assert word in last, last


def test_workers_may_start_before_the_head(cluster):
    head = with_join_file(cluster)
    head.kill(signal.SIGTERM)
    assert head.exit_code() == 0
    early = [cluster.worker(), cluster.worker()]
    for worker in early:
        worker.wait_log("Seeking the head")
    cluster.head(DEMO, "--min-devices", 3)
    wait_until(lambda: cluster.state() and len(cluster.joined_nodes()) == 2, "both have joined")
    assert cluster.state() == "forming"
    assert "3" in cluster.status()["cluster"]["message"]
    cluster.worker()
    cluster.wait_ready()
    assert len(cluster.ready_nodes()) == 3
    cluster.complete("brandy", max_tokens=4)


def test_a_head_waits_for_its_devices_and_says_so(cluster):
    head = cluster.head(DEMO, "--min-devices", 2)
    wait_until(cluster.state, "the head answers")
    assert cluster.state() == "forming"
    head.wait_log("troupe worker --head")
    assert cluster.post("/v1/completions", {"prompt": "a"})[0] == 503
    cluster.worker()
    wait_until(cluster.joined_nodes, "one has joined")
    assert cluster.state() == "forming"
    cluster.worker()
    cluster.wait_ready()
    head.wait_log("Ready after")


def test_status_shows_a_joined_node_within_a_second(cluster):
    head = with_join_file(cluster)
    worker = cluster.worker()
    worker.wait_log("Joined the cluster")
    joined = time.monotonic()
    status = json.loads(run("status", "--json", env=cluster.env).stdout)
    bound("the status shows a joined node", time.monotonic() - joined, 1)
    (node,) = status["nodes"]
    assert node["pid"] == worker.pid and node["role"] == "worker"
    assert node["devices"][0]["memory_total"] > 0
    assert head.popen.poll() is None


def test_a_worker_without_a_join_file_ends(cluster):
    refused(cluster.worker(), "join")
    refused(cluster.worker("--join", cluster.folder / "nowhere"), str(cluster.folder / "nowhere"))


def test_a_worker_of_another_cluster_is_refused(cluster):
    with_join_file(cluster)
    with Cluster() as other:
        with_join_file(other)
        refused(cluster.worker("--join", join_file(other)), "join file")
    worker = cluster.worker()
    worker.wait_log("Joined the cluster")
    cluster.wait_ready()


def test_a_worker_with_another_checkpoint_is_refused(cluster):
    with_join_file(cluster)
    refused(cluster.worker("--model", V3), "checkpoint")
    wait_until(lambda: cluster.status()["cluster"]["counters"]["refused"] == 1, "it is counted")
    copy = cluster.folder / "copy"
    shutil.copytree(DEMO, copy)
    cluster.worker("--model", copy)
    cluster.wait_ready()


def test_a_worker_that_finds_no_checkpoint_says_so(cluster):
    with_join_file(cluster)
    refused(cluster.worker("--model", cluster.folder / "none"), str(cluster.folder / "none"))


def test_a_worker_at_a_wrong_port_keeps_seeking_and_can_be_ended(cluster):
    with_join_file(cluster)
    worker = cluster.start("worker", "--head", f"127.0.0.1:{free_port()}")
    worker.wait_log("Seeking the head")
    time.sleep(1)
    assert worker.popen.poll() is None
    worker.kill(signal.SIGINT)
    assert worker.exit_code() == 0


def test_a_worker_at_something_else_than_a_head_does_not_join(cluster):
    with_join_file(cluster)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        worker = cluster.start("worker", "--head", f"127.0.0.1:{mute.getsockname()[1]}")
        worker.wait_log("Seeking the head")
        time.sleep(1)
        assert worker.popen.poll() is None
        worker.kill(signal.SIGTERM)
        assert worker.exit_code() == 0


def test_a_head_whose_name_does_not_resolve(cluster):
    with_join_file(cluster)
    worker = cluster.start("worker", "--head", "no-such-host.invalid:6379")
    wait_until(lambda: "no-such-host.invalid" in worker.log(), "it names the host")
    head = cluster.start("head", "--model", DEMO, "--listen", "no-such-host.invalid:0", "--port", 0,
                         "--state-dir", cluster.folder / "other")  # fmt: skip
    refused(head, "no-such-host.invalid")
    head = cluster.start("head", "--model", DEMO, "--listen", "127.0.0.1:0", "--port", 0, "--host",
                         "no-such-host.invalid", "--state-dir", cluster.folder / "other")  # fmt: skip
    refused(head, "no-such-host.invalid")


@pytest.mark.parametrize("taken", ["control", "http"])
def test_a_port_in_use_is_named(cluster, taken):
    port = cluster.control_port if taken == "control" else cluster.http_port
    with socket.create_server(("127.0.0.1", port)):
        for command in ("head", "up"):
            process = getattr(cluster, command)(DEMO, *(["--no-respawn"] if command == "up" else []),
                                                **({"ready": False} if command == "up" else {}))  # fmt: skip
            refused(process, str(port))
    assert not cluster.pids()


@pytest.mark.parametrize("flags", [["--fabric", "shm"], ["--bind-interface", "none0"]], ids=lambda f: f[0])
def test_up_refuses_a_fabric_that_no_worker_can_open(cluster, flags):
    up = cluster.up(DEMO, *flags, ready=False)
    assert up.exit_code() in (1, 2)
    assert up.log().count("troupe: ") == 1 and up.log().endswith(".\n"), up.log()
    assert not cluster.pids()


def test_one_head_a_state_folder(cluster):
    with_join_file(cluster)
    second = cluster.start("head", "--model", DEMO, "--listen", "127.0.0.1:0", "--port", 0)
    refused(second, str(cluster.state_dir), "troupe stop")


@pytest.mark.parametrize("how", ["stop", "SIGTERM", "SIGINT"])
@pytest.mark.parametrize("fabric", ["net", "tcp"])
def test_nothing_is_left(cluster, how, fabric):
    up = cluster.up(DEMO, "--pipeline-parallel-size", 2, "--data-parallel-size", 1, "--fabric", fabric)
    cluster.complete("brandy", max_tokens=4)
    pids = cluster.pids()
    assert len(pids) == 3
    ports = listening_ports(pids)
    assert {cluster.control_port, cluster.http_port} <= ports.keys()
    started = time.monotonic()
    if how == "stop":
        cluster.stop()
        cluster.assert_nothing_left(ports)
    else:
        up.kill(getattr(signal, how))
    assert up.exit_code() == 0
    cluster.assert_nothing_left(ports)
    bound("stopped, and nothing left", time.monotonic() - started, 8)
    status = run("status", env=cluster.env)
    assert status.returncode == 1 and status.stderr.startswith("troupe: ")


def test_stop_ends_workers_that_were_started_by_hand(cluster):
    head = with_join_file(cluster)
    workers = [cluster.worker(), cluster.worker()]
    cluster.wait_ready()
    cluster.stop()
    assert not cluster.pids()
    assert [process.exit_code() for process in [head, *workers]] == [0, 0, 0]


def test_stop_while_it_forms_and_under_load(cluster):
    cluster.up(DEMO, ready=False)
    wait_until(join_file(cluster).exists, "the head writes its join file")
    wait_until(lambda: run("stop", env=cluster.env).returncode == 0, "it takes the order")
    assert not cluster.pids()


def test_a_worker_that_is_told_to_end_leaves(cluster):
    with_join_file(cluster)
    stays, leaves = cluster.worker(), cluster.worker()
    wait_until(lambda: len(cluster.joined_nodes()) == 2, "both have joined")
    leaves.kill(signal.SIGTERM)
    assert leaves.exit_code() == 0
    wait_until(lambda: [n["pid"] for n in cluster.ready_nodes()] == [stays.pid], "one is left")
    cluster.wait_ready()
