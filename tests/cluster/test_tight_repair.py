"""Accelerators that have just the memory: what is left after a loss has to compute as well."""

import pytest

from running import GOLDEN, TESTING, float32_bits, post, wait_until

MODEL = GOLDEN / "v3"
LIMITS = ["--max-model-len", 256, "--max-num-batched-tokens", 64, "--max-num-seqs", 4, "--numerics", "bf16",
          "--min-devices", 2, "--request-timeout", 40]  # fmt: skip
ROOM = 9_500_000  # all of the model, and what small steps compute with
LITTLE = 8_000_000  # a half of it


def twin(cluster, room):
    return cluster.start("worker", "--head", f"127.0.0.1:{cluster.control_port}", "--threads", 1,
                         "--device", "cuda-twin", "--device-memory", room, program=TESTING)  # fmt: skip


def start(cluster, room):
    cluster.head(MODEL, *LIMITS)
    cluster.wait_joinable()
    workers = [twin(cluster, room) for _ in range(2)]
    cluster.wait_ready()
    return workers


def kill_host(cluster, workers):
    """The one with the shard. Returns the other."""
    host = cluster.status()["replicas"][0]["shards"][0]["device"].split("/")[0]
    pid = next(node["pid"] for node in cluster.status()["nodes"] if node["id"] == host)
    next(worker for worker in workers if worker.pid == pid).popen.kill()
    wait_until(lambda: cluster.state() != "ready", "the loss is noticed")
    return next(worker for worker in workers if worker.pid != pid)


def answers(cluster):
    """Prompts longer than a step, one after the other, with the bits of what they were drawn from."""
    found = []
    for key in range(4):
        body = {"prompt": [(7 * key + 3 * i) % 100 + 3 for i in range(90)], "max_tokens": 8,
                "seed": key, "temperature": key % 2, "ignore_eos": True, "return_token_ids": True,
                "logprobs": 0}  # fmt: skip
        status, answer = post(cluster.base_url, "/v1/completions", body, 40)
        assert status == 200, answer
        choice = answer["choices"][0]
        found.append((choice["token_ids"], float32_bits(choice["logprobs"]["token_logprobs"])))
    return found


@pytest.mark.long
def test_what_is_left_after_a_loss_computes_in_smaller_steps_to_the_same_bits(cluster):
    workers = start(cluster, ROOM)
    expected = answers(cluster)
    survivor = kill_host(cluster, workers)
    cluster.wait_ready()
    assert answers(cluster) == expected
    assert "memory is short" not in survivor.log(), survivor.log()
    texts = [event["text"] for event in cluster.status()["events"] if event["kind"] == "placement"]
    assert any("have memory to compute with for steps of" in text for text in texts), texts


@pytest.mark.long
def test_what_has_no_memory_to_compute_is_not_tried_and_the_status_says_so(cluster):
    workers = start(cluster, LITTLE)
    expected = answers(cluster)
    survivor = kill_host(cluster, workers)
    wait_until(lambda: cluster.state() == "degraded", "nothing fits")
    message = cluster.status()["cluster"]["message"]
    assert "lacks" in message and "for what even steps of 8 tokens compute with" in message
    twin(cluster, LITTLE)
    cluster.wait_ready()
    assert answers(cluster) == expected
    assert "memory is short" not in survivor.log(), survivor.log()
