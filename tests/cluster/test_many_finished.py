"""A head that finds a hundred thousand finished requests in its journal serves soon."""

import itertools
import time

import pytest

from promises import bound
from recovery import SMALL
from running import at_once, get, wait_until
from streams import WAIT_S
from test_head_dies import refusal

COUNT = 100_000
EACH = 500  # prompts of one call, each of which is a request of the journal
STARTS_S = 2


@pytest.mark.long
@pytest.mark.alone
def test_a_hundred_thousand_finished_requests(stages):
    stage = stages(*SMALL, "--min-devices", 2, "--keep-for", 600)
    prompts = ([[5 + number % 500, 7 + number // 500] for number in range(first, first + EACH)]
               for first in range(0, COUNT, EACH))  # fmt: skip

    def ask(some):
        status, answer = stage.post("/v1/completions", {
            "prompt": some, "max_tokens": 1, "temperature": 0, "return_token_ids": True}, WAIT_S)  # fmt: skip
        assert status == 200, answer
        return answer["id"]

    names = at_once(ask, prompts, threads=4)
    assert stage.status()["requests"]["finished"] == COUNT
    looked_at = [names[0], names[-1], *itertools.islice(names, 1, None, 40)]
    before = [get(stage.base_url, f"/v1/requests/{name}") for name in looked_at]
    stage.head_process.kill()
    stage.head_process.popen.wait()
    began = time.monotonic()
    stage.start_head()
    wait_until(lambda: stage.state() == "ready" and refusal(stage, "/health") is None, "it serves")
    bound("a head with 100,000 finished requests serves", time.monotonic() - began, STARTS_S)
    assert [get(stage.base_url, f"/v1/requests/{name}") for name in looked_at] == before
    stage.complete("brandy", max_tokens=4)
