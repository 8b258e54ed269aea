"""Hidden states are those that the reference's answers come from, the same bits however the cluster is laid
out, and outlive a worker and the head like any answer."""

import functools
import itertools
import json
import math
import struct
import threading
import urllib.request

import pytest

from recovery import SMALL, hurt, node_with_replica
from running import DEMO, V3, Cluster, wait_until
from streams import WAIT_S, Missed, arranged

PROMPTS = [[0, *range(90, 90 + n)] for n in (1, 17, 130)]


def pooled(base_url, path="/pooling", key=None, **body):
    headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
    request = urllib.request.Request(base_url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)["data"]


def of_prompts(cluster):
    """As they are written: base64 of float32."""
    fields = dict(input=PROMPTS, normalize=False, encoding_format="base64")
    return [pooled(cluster.base_url, task=task, **fields) for task in ("token_embed", "embed")]


@functools.cache
def alone():
    with Cluster() as cluster:
        cluster.up(DEMO, workers=1)
        return of_prompts(cluster)


@pytest.mark.parametrize("workers, flags", [
    (2, "--max-num-batched-tokens 16 --block-size 4"),
    (2, "--tensor-parallel-size 2"),
    (3, "--pipeline-parallel-size 3 --data-parallel-size 1"),
])  # fmt: skip
def test_the_layout_changes_no_bit(cluster, workers, flags):
    cluster.up(DEMO, *flags.split(), workers=workers)
    assert of_prompts(cluster) == alone()
    assert of_prompts(cluster) == alone()  # with rows of these prompts in the prefix cache


def tensor(name):
    """A matrix of the checkpoint, by rows."""
    index = json.loads((V3 / "model.safetensors.index.json").read_text())["weight_map"]
    data = (V3 / index[name]).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    about = json.loads(data[8 : 8 + length])[name]
    first, last = (8 + length + at for at in about["data_offsets"])
    rows, columns = about["shape"]
    if about["dtype"] == "F32":
        values = struct.unpack(f"<{rows * columns}f", data[first:last])
    else:
        assert about["dtype"] == "BF16"
        halves = struct.unpack(f"<{rows * columns}H", data[first:last])
        words = struct.pack(f"<{rows * columns}I", *(half << 16 for half in halves))
        values = struct.unpack(f"<{rows * columns}f", words)
    return [values[i * columns : (i + 1) * columns] for i in range(rows)]


def test_hidden_states_times_the_head_are_the_references_log_probabilities(cluster):
    cluster.up(V3, "--numerics", "reference", workers=2)
    head = tensor("lm_head.weight")
    for case in json.loads((V3 / "golden.json").read_text())["prompts"][:3]:
        prompt, wanted = case["prompt"], case["prompt_logprobs"]
        rows = pooled(cluster.base_url, input=prompt, normalize=False)[0]["data"]
        assert len(rows) == len(prompt) and len(rows[0]) == len(head[0])
        for at in range(0, len(prompt) - 1, 1 + len(prompt) // 20):
            logits = [sum(map(float.__mul__, rows[at], row)) for row in head]
            largest = max(logits)
            total = largest + math.log(math.fsum(math.exp(x - largest) for x in logits))
            assert abs(logits[prompt[at + 1]] - total - wanted[at + 1]) < 0.01


class Embedding(threading.Thread):
    """Many inputs that take some seconds."""

    def __init__(self, cluster, key=None):
        super().__init__(daemon=True)
        self.base_url, self.key, self.data, self.error = cluster.base_url, key, None, None
        self.start()

    def run(self):
        try:
            self.data = self.ask()
        except OSError as error:
            self.error = error

    def ask(self):
        inputs = [[0, *((i * 7 + p * 3) % 400 for p in range(300))] for i in range(24)]
        return pooled(self.base_url, "/v1/embeddings", self.key, input=inputs)


def under_way(cluster, *keys):
    """Embeddings that are asked for, with one of these keys each, and are not at their end."""
    asked = [Embedding(cluster, key=key) for key in keys]
    over = lambda: not all(one.is_alive() for one in asked)  # noqa: E731
    wait_until(lambda: over() or cluster.status()["requests"]["running"] > 4, "they run")
    if over():
        for one in asked:
            one.join()
            assert one.error is None, one.error
        raise Missed("they were at their end")
    return asked


def test_a_worker_that_is_killed_costs_no_embedding(cluster):
    cluster.up(DEMO, *SMALL)
    expected = Embedding(cluster).ask()
    asked = arranged(lambda: under_way(cluster, None, None))
    hurt(cluster, node_with_replica(cluster))
    for one in asked:
        one.join(WAIT_S)
        assert one.error is None and one.data == expected
    status = cluster.status()["requests"]
    assert status["failed"] == 0 and status["replayed"] > 0


def test_an_accepted_embedding_outlives_the_head(stages):
    stage = stages(*SMALL, "--min-devices", 2)
    expected = Embedding(stage).ask()
    keys = map("again-{}".format, itertools.count())
    (one,) = arranged(lambda: under_way(stage, next(keys)))
    stage.head_process.kill()
    stage.head_process.popen.wait()
    one.join(WAIT_S)
    assert one.error is not None
    stage.start_head()
    wait_until(lambda: stage.state() == "ready", "it serves")
    again = Embedding(stage, key=one.key).ask()
    assert again == expected
    finished = stage.status()["requests"]["finished"]
    assert Embedding(stage, key=one.key).ask() == expected
    assert stage.status()["requests"]["finished"] == finished
