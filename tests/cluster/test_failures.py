"""What happens when a member dies or hangs: clear errors, and a cluster that comes back."""

import os
import signal
import time

import pytest

from running import DEMO, Cluster, at_once, run, wait_until

SPREAD = ["--pipeline-parallel-size", 2, "--data-parallel-size", 1]
# A lease is 1.2 s; a killed process is noticed at once.
NOTICED_KILLED_S = 2
NOTICED_HUNG_S = 2 + 1.2


def long_requests(cluster, count=4):
    """Starts requests that last; gives a function that awaits their answers and how long each took
    from then on."""
    import concurrent.futures

    pool = concurrent.futures.ThreadPoolExecutor(count)

    def one(i):
        body = {"prompt": [5 + i, 9], "max_tokens": 3500, "temperature": 1, "ignore_eos": True}
        answer = cluster.post("/v1/completions", body, seconds=60)
        return time.monotonic(), answer

    futures = [pool.submit(one, i) for i in range(count)]

    def finish():
        try:
            return [future.result(60) for future in futures]
        finally:
            pool.shutdown()

    wait_until(lambda: cluster.status()["requests"]["running"] == count, 10, "requests run")
    return finish


def assert_failed_in_time(answers, since, seconds):
    for ended, (status, answer) in answers:
        assert ended - since < seconds
        assert status in (500, 502, 503), answer
        assert answer["error"]["message"].endswith("."), answer


@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_worker(cluster, which):
    cluster.up(DEMO, *SPREAD)
    nodes = cluster.ready_nodes()
    finish = long_requests(cluster)
    killed = time.monotonic()
    os.kill(nodes[which]["pid"], signal.SIGKILL)
    assert_failed_in_time(finish(), killed, NOTICED_KILLED_S)
    texts = [event["text"] for event in cluster.status()["events"]]
    assert any(nodes[which]["id"] in text and "lost" in text for text in texts), texts
    cluster.wait_ready()
    ready = cluster.ready_nodes()
    assert len(ready) == 2
    assert nodes[which]["pid"] not in [node["pid"] for node in ready]
    cluster.complete("brandy", max_tokens=4)
    assert cluster.status()["replicas"][0]["kv_blocks_used"] == 0


def test_without_respawn_the_loss_is_told(cluster):
    cluster.up(DEMO, *SPREAD, "--no-respawn")
    node = cluster.ready_nodes()[1]
    os.kill(node["pid"], signal.SIGKILL)
    wait_until(lambda: cluster.state() != "ready", 2, "it is not ready any more")
    status = cluster.status()
    assert node["id"] in str(status["cluster"]) + str(status["events"])
    told = run("status", env=cluster.env)
    assert told.returncode == 0 and node["id"] in told.stdout


def test_both_workers_killed_at_once(cluster):
    cluster.up(DEMO)
    finish = long_requests(cluster)
    killed = time.monotonic()
    for node in cluster.ready_nodes():
        os.kill(node["pid"], signal.SIGKILL)
    assert_failed_in_time(finish(), killed, NOTICED_KILLED_S)
    cluster.wait_ready()
    cluster.complete("brandy", max_tokens=4)


def test_a_hung_worker_loses_its_lease_and_comes_back(cluster):
    cluster.head(DEMO, *SPREAD, "--min-devices", 2)
    wait_until((cluster.state_dir / "join").exists, 10, "the head writes its join file")
    workers = {worker.pid: worker for worker in (cluster.worker(), cluster.worker())}
    cluster.wait_ready()
    before = cluster.ready_nodes()
    hung = before[1]
    finish = long_requests(cluster)
    stopped = time.monotonic()
    os.kill(hung["pid"], signal.SIGSTOP)
    assert_failed_in_time(finish(), stopped, NOTICED_HUNG_S)
    wait_until(lambda: cluster.state() != "ready", 1, "the loss is told")
    os.kill(hung["pid"], signal.SIGCONT)
    cluster.wait_ready()
    after = {node["pid"]: node for node in cluster.ready_nodes()}
    assert set(after) == set(workers)
    assert after[hung["pid"]]["incarnation"] > hung["incarnation"]
    cluster.complete("brandy", max_tokens=4)


def test_a_head_that_is_killed_and_comes_back_finds_its_workers(cluster):
    flags = [*SPREAD, "--min-devices", 2]
    head = cluster.head(DEMO, *flags)
    wait_until((cluster.state_dir / "join").exists, 10, "the head writes its join file")
    workers = [cluster.worker(), cluster.worker()]
    cluster.wait_ready()
    incarnations = {node["pid"]: node["incarnation"] for node in cluster.ready_nodes()}
    head.kill(signal.SIGKILL)
    head.popen.wait()
    time.sleep(2)
    assert all(worker.popen.poll() is None for worker in workers)
    cluster.head(DEMO, *flags)
    cluster.wait_ready()
    again = {node["pid"]: node["incarnation"] for node in cluster.ready_nodes()}
    assert set(again) == set(incarnations) == {worker.pid for worker in workers}
    assert all(again[pid] > incarnations[pid] for pid in again)
    cluster.complete("brandy", max_tokens=4)


def test_up_killed_takes_its_workers_along(cluster):
    up = cluster.up(DEMO)
    up.kill(signal.SIGKILL)
    wait_until(lambda: not cluster.pids(), 8, "its workers end")


def test_kills_in_a_row(cluster):
    cluster.up(DEMO)
    for _ in range(4):
        os.kill(cluster.ready_nodes()[0]["pid"], signal.SIGKILL)
        wait_until(lambda: cluster.state() != "ready" or len(cluster.ready_nodes()) < 2, 2, "lost")
        wait_until(
            lambda: cluster.state() == "ready" and len(cluster.ready_nodes()) == 2, 20, "it is ready"
        )
        at_once(lambda i: cluster.complete([5 + i, 7], max_tokens=8), range(8))
