"""A model with as many tensors as DeepSeek-V3 has, in one file and in its 163."""

import os
import signal
import time

import pytest

from generated import many_tensors
from recovery import settled
from running import Cluster, wait_until

PROMPT = list(range(5, 40))


@pytest.mark.parametrize("files", [pytest.param(1, marks=pytest.mark.long), 163])
def test_a_cluster_serves_it_and_a_killed_worker_changes_nothing(troupe, tmp_path, files):
    assert many_tensors(tmp_path / "model", files) == 45_395
    with Cluster() as cluster:
        cluster.up(tmp_path / "model", "--redundant-experts", 32, "--min-devices", 4, "--threads", 1,
                   "--kv-cache-memory", "16MiB", "--data-parallel-size", 1,
                   workers=4, ready=False)  # fmt: skip
        began = time.monotonic()
        cluster.wait_ready(90)
        wait_until(lambda: len(cluster.ready_nodes()) == 4, "four workers are used")
        print(f"{files} files: ready after {time.monotonic() - began:.1f} s")
        status = settled(cluster)
        assert all(len(layer["slots"]) == 288 for layer in status["experts"]["placement"])
        fields = {"max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        before = cluster.complete(PROMPT, **fields)["choices"][0]["token_ids"]
        hosts = {shard["device"].split("/")[0] for r in status["replicas"] for shard in r["shards"]}
        victim = next(node for node in status["nodes"] if node["id"] not in hosts)
        assert victim["pid"] in cluster.pids()
        os.kill(victim["pid"], signal.SIGKILL)
        for _ in range(3):
            assert cluster.complete(PROMPT, **fields)["choices"][0]["token_ids"] == before
