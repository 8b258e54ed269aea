"""What happens when a member dies or hangs: requests go on, and a cluster that comes back."""

import concurrent.futures
import json
import os
import shutil
import signal
import struct
import time

import pytest

from promises import bound
from recovery import LASTING_TOKENS, NOTICED_HUNG_S
from running import DEMO, V2_LITE, Cluster, at_once, generate, run, wait_until
from streams import WAIT_S, Missed, arranged

LONG = LASTING_TOKENS
SPREAD = ["--pipeline-parallel-size", 2, "--data-parallel-size", 1]
RANKS = ["--tensor-parallel-size", 2]


def long_requests(cluster, count=4):
    """Starts requests that last; gives a function that awaits their answers."""
    pool = concurrent.futures.ThreadPoolExecutor(count)

    def one(i):
        body = {"prompt": [5 + i, 9], "max_tokens": LONG, "seed": i, "ignore_eos": True}
        return cluster.post("/v1/completions", body)

    def start():
        futures = [pool.submit(one, i) for i in range(count)]
        over = lambda: any(future.done() for future in futures)  # noqa: E731
        wait_until(lambda: cluster.status()["requests"]["running"] == count or over(), "requests run")
        if over():
            concurrent.futures.wait(futures)
            raise Missed("a request was at its end before all ran")
        return futures

    futures = arranged(start)

    def finish():
        try:
            return [future.result(WAIT_S) for future in futures]
        finally:
            pool.shutdown()

    return finish


def wait_replaced(cluster, killed):
    def replaced():
        pids = [node["pid"] for node in cluster.ready_nodes()]
        return cluster.state() == "ready" and len(pids) == 2 and killed not in pids

    wait_until(replaced, "another is used")


def assert_all_finished(cluster, answers):
    """Nothing of the loss is to be seen: the same tokens as when they run again undisturbed."""
    again = long_requests(cluster, len(answers))()
    for (status, answer), (_, undisturbed) in zip(answers, again):
        assert status == 200, answer
        assert answer["usage"]["completion_tokens"] == LONG
        assert answer["choices"][0]["text"] == undisturbed["choices"][0]["text"]


@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("layout", [
    pytest.param(SPREAD, id="a stage", marks=pytest.mark.long), pytest.param(RANKS, id="a rank"),
])
def test_a_killed_worker(cluster, layout, which):
    cluster.up(DEMO, *layout)
    nodes = cluster.ready_nodes()
    finish = long_requests(cluster)
    os.kill(nodes[which]["pid"], signal.SIGKILL)
    answers = finish()

    def told():
        texts = [event["text"] for event in cluster.status()["events"]]
        return any(nodes[which]["id"] in text and "lost" in text for text in texts)

    wait_until(told, "the loss is told")
    wait_replaced(cluster, nodes[which]["pid"])
    assert_all_finished(cluster, answers)
    cluster.complete("brandy", max_tokens=4)
    wait_until(
        lambda: cluster.status()["replicas"][0]["kv_blocks_used"] == 0, "its blocks are free"
    )


def test_without_respawn_the_loss_is_told(cluster):
    cluster.up(DEMO, *SPREAD, "--no-respawn")
    node = cluster.ready_nodes()[1]
    began = time.monotonic()
    os.kill(node["pid"], signal.SIGKILL)
    wait_until(lambda: len(cluster.ready_nodes()) == 1, "the loss is noticed")
    bound("noticed", time.monotonic() - began, 0.5)
    texts = [event["text"] for event in cluster.status()["events"]]
    assert any(node["id"] in text and "lost" in text for text in texts), texts
    told = run("status", env=cluster.env)
    assert told.returncode == 0 and node["id"] in told.stdout
    cluster.wait_ready()  # with what is left
    cluster.complete("brandy", max_tokens=4)


def test_both_workers_killed_at_once(cluster):
    cluster.up(DEMO)
    finish = long_requests(cluster)
    for node in cluster.ready_nodes():
        os.kill(node["pid"], signal.SIGKILL)
    answers = finish()
    cluster.wait_ready()
    assert_all_finished(cluster, answers)
    cluster.complete("brandy", max_tokens=4)


def test_a_hung_worker_loses_its_lease_and_comes_back(cluster):
    cluster.head(DEMO, *SPREAD, "--min-devices", 2)
    cluster.wait_joinable()
    workers = {worker.pid: worker for worker in (cluster.worker(), cluster.worker())}
    cluster.wait_ready()
    before = cluster.ready_nodes()
    hung = before[1]
    finish = long_requests(cluster)
    began = time.monotonic()
    os.kill(hung["pid"], signal.SIGSTOP)
    wait_until(lambda: len(cluster.ready_nodes()) == 1, "the loss is noticed")
    bound("noticed", time.monotonic() - began, NOTICED_HUNG_S)
    answers = finish()  # by the one that is left
    os.kill(hung["pid"], signal.SIGCONT)
    wait_until(lambda: len(cluster.ready_nodes()) == 2, "it is a member again")
    cluster.wait_ready()
    assert_all_finished(cluster, answers)
    after = {node["pid"]: node for node in cluster.ready_nodes()}
    assert set(after) == set(workers)
    assert after[hung["pid"]]["incarnation"] > hung["incarnation"]
    cluster.complete("brandy", max_tokens=4)


@pytest.mark.long
def test_a_worker_of_up_that_hangs_is_replaced(cluster):
    up = cluster.up(DEMO)
    hung = cluster.ready_nodes()[0]["pid"]
    os.kill(hung, signal.SIGSTOP)
    replaced = lambda: len(cluster.ready_nodes()) == 2 and hung not in cluster.pids()  # noqa: E731
    wait_until(replaced, "another is in its place")
    assert f"(process {hung}) was lost, is still there and is ended" in up.log()
    cluster.complete("brandy", max_tokens=4)


def test_a_head_that_is_killed_and_comes_back_finds_its_workers(cluster):
    flags = [*SPREAD, "--min-devices", 2]
    head = cluster.head(DEMO, *flags)
    cluster.wait_joinable()
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
    assert set(again) == {worker.pid for worker in workers}
    assert again == incarnations  # they go on with what they served
    cluster.complete("brandy", max_tokens=4)


def exchange_experts(folder):
    """The experts of each layer take the weights of their neighbours: another model, of the same shape."""
    weights = folder / "model.safetensors"
    with weights.open("r+b") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        tensors = json.loads(file.read(length))
        for name, even in tensors.items():
            parts = name.split(".")
            if "experts" not in parts or int(parts[5]) % 2:
                continue
            odd = tensors[".".join([*parts[:5], str(int(parts[5]) + 1), *parts[6:]])]
            places = [8 + length + tensor["data_offsets"][0] for tensor in (even, odd)]
            size = even["data_offsets"][1] - even["data_offsets"][0]
            contents = []
            for place in places:
                file.seek(place)
                contents.append(file.read(size))
            for place, content in zip(places, reversed(contents)):
                file.seek(place)
                file.write(content)


@pytest.mark.parametrize("other", ["same shape", "fewer experts"])
def test_a_head_that_comes_back_with_another_model(cluster, other, tmp_path):
    """What the workers hold of the first one serves no request for the second."""
    second = V2_LITE
    if other == "same shape":
        second = tmp_path / "second"
        shutil.copytree(DEMO, second)
        exchange_experts(second)
    flags = [*SPREAD, "--min-devices", 2, "--kv-cache-memory", "64MiB"]
    head = cluster.head(DEMO, *flags)
    cluster.wait_joinable()
    cluster.worker(), cluster.worker()
    ids = [0, 5, 9]

    def tokens():
        answer = cluster.complete(ids, max_tokens=24, temperature=0, ignore_eos=True, return_token_ids=True)
        return answer["choices"][0]["token_ids"]

    def alone(model):
        words = ["--prompt-ids", "0,5,9", "--max-tokens", 24, "--temperature", 0, "--ignore-eos"]
        return generate(model, *words)["tokens"]

    cluster.wait_ready()
    first = tokens()
    assert first == alone(DEMO)
    head.kill(signal.SIGKILL)
    head.popen.wait()
    cluster.head(second, *flags)
    cluster.wait_ready()
    assert tokens() == alone(second) != first


def test_up_killed_takes_its_workers_along(cluster):
    up = cluster.up(DEMO)
    up.kill(signal.SIGKILL)
    began = time.monotonic()
    wait_until(lambda: not cluster.pids(), "its workers end")
    bound("its workers end", time.monotonic() - began, 8)


def test_kills_in_a_row(cluster):
    cluster.up(DEMO)
    for _ in range(4):
        killed = cluster.ready_nodes()[0]["pid"]
        os.kill(killed, signal.SIGKILL)
        wait_replaced(cluster, killed)
        at_once(lambda i: cluster.complete([5 + i, 7], max_tokens=8), range(8))
