"""Everything that a replay might send twice, lose or change, in one request whose replicas are killed again
and again: prompt log-probabilities, several choices, alternatives, usage, its end, and that it ends once."""

import random

import pytest
from answers import difference
from recovery import ONE_REPLICA, SMALL, hosts_of_running, hurt
from running import DEMO, Cluster, wait_until
from streams import Missed, Stream, arranged

# One replica has all choices. Small chunks, so that kills fall into the prompt, and into the answer.
SMALL_CHUNKS = [*ONE_REPLICA, "--max-num-batched-tokens", 64]
PROMPT = [0, *random.Random(10).choices(range(6, 4000), k=3399)]
REQUEST = {"key": 0, "path": "/v1/completions", "body": {
    "prompt": PROMPT, "max_tokens": 600, "n": 3, "temperature": 1, "seed": 10, "echo": True, "logprobs": 5,
    "presence_penalty": 0.2, "frequency_penalty": 0.1, "ignore_eos": True, "stream": True,
    "stream_options": {"include_usage": True}, "return_token_ids": True}}  # fmt: skip
KILLS_OF_THE_PROMPT, KILLS_OF_THE_ANSWER = 2, 3


def kill_hosts(cluster, killed):
    """Kills a node of a replica that runs the request and has rows of it, once there is one."""

    def find():
        status = cluster.status()
        if any(replica["running"] and replica["kv_blocks_used"] for replica in status["replicas"]):
            return [n for n in hosts_of_running(status) if n["pid"] not in killed]

    victim = wait_until(find, "the request runs")[0]
    killed.add(victim["pid"])
    hurt(cluster, victim)


def kill_again_and_again(cluster):
    """The stream of a request whose replicas are killed, before its first token and after it."""
    wait_until(lambda: cluster.state() == "ready" and len(cluster.ready_nodes()) == 3, "three serve")
    replayed = cluster.status()["requests"]["replayed"]
    stream, killed = Stream(cluster, REQUEST), set()
    for _ in range(KILLS_OF_THE_PROMPT):
        kill_hosts(cluster, killed)
        if stream.times:
            stream.wait()
            raise Missed("the prompt was computed before the kill")
    wait_until(lambda: stream.times, "the first token")
    for _ in range(KILLS_OF_THE_ANSWER):
        kill_hosts(cluster, killed)
        if not stream.flows():
            raise Missed("the answer was there before the kill")
        tokens = len(stream.times)
        wait_until(lambda count=tokens: len(stream.times) > count or not stream.flows(), "it goes on")
    stream.wait()
    assert stream.error is None, f"{stream.error}\n{cluster.logs()}"
    assert cluster.status()["requests"]["replayed"] - replayed >= len(killed)
    return stream


@pytest.mark.long
def test_kills_during_the_prompt_and_during_the_answer(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO, *SMALL, workers=1)
        quiet = Stream(cluster, REQUEST).wait()
        assert quiet.error is None, quiet.error
        (choice, *others) = quiet.answer["choices"].values()
        assert len(others) == 2 and len(choice["numbers"]) == len(PROMPT) + REQUEST["body"]["max_tokens"]
        assert quiet.answer["usage"][0]["completion_tokens"] == 3 * REQUEST["body"]["max_tokens"]
    with Cluster() as cluster:
        cluster.up(DEMO, *SMALL_CHUNKS, workers=3)
        stream = arranged(lambda: kill_again_and_again(cluster))
        assert difference(quiet.answer, stream.answer) is None
        assert cluster.status()["requests"]["failed"] == 0
