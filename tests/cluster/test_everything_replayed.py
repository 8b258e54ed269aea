"""Everything that a replay might send twice, lose or change, in one request whose replicas are killed again
and again: prompt log-probabilities, several choices, alternatives, usage, its end, and that it ends once."""

import random
import time

import pytest
from answers import difference
from recovery import ONE_REPLICA, SMALL, hosts_of_running, hurt
from running import DEMO, Cluster, wait_until
from streams import Stream

# One replica has all choices. Small chunks, so that kills fall into the prompt, and into the answer.
SMALL_CHUNKS = [*ONE_REPLICA, "--max-num-batched-tokens", 64]
PROMPT = [0, *random.Random(10).choices(range(6, 4000), k=3399)]
REQUEST = {"key": 0, "path": "/v1/completions", "body": {
    "prompt": PROMPT, "max_tokens": 600, "n": 3, "temperature": 1, "seed": 10, "echo": True, "logprobs": 5,
    "presence_penalty": 0.2, "frequency_penalty": 0.1, "ignore_eos": True, "stream": True,
    "stream_options": {"include_usage": True}, "return_token_ids": True}}  # fmt: skip
KILLS_OF_THE_PROMPT, KILLS_OF_THE_ANSWER = 2, 3


def kill_hosts(cluster, killed):
    """Kills a node of a replica that runs the request, once there is one."""

    def find():
        return [n for n in hosts_of_running(cluster.status()) if n["pid"] not in killed]

    victim = wait_until(find, 20, "the request runs")[0]
    time.sleep(0.05)  # into its chunks
    killed.add(victim["pid"])
    hurt(cluster, victim)


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
        stream, killed = Stream(cluster, REQUEST), set()
        for _ in range(KILLS_OF_THE_PROMPT):
            kill_hosts(cluster, killed)
            assert not stream.times, "the prompt was computed before the kill"
        wait_until(lambda: stream.times, 30, "the first token")
        for _ in range(KILLS_OF_THE_ANSWER):
            kill_hosts(cluster, killed)
            assert stream.thread.is_alive(), "the answer was there before the kill"
            tokens = len(stream.times)
            wait_until(lambda: len(stream.times) > tokens, 30, "it goes on")
        stream.wait()
        assert stream.error is None, f"{stream.error}\n{cluster.logs()}"
        assert difference(quiet.answer, stream.answer) is None
        requests = cluster.status()["requests"]
        assert requests["failed"] == 0 and requests["replayed"] >= len(killed)
