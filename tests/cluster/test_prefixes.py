"""What the prefix cache finds changes no bit of an answer, only the time until it comes."""

import functools
import json
import random
import signal
import threading

import pytest

import promises
from answers import events_of
from recovery import SMALL, worker_of
from running import DEMO, V2_LITE, V3, Cluster, at_once, float32_bits, get, wait_until
from streams import Stream

TOKENS = 24
BLOCK = 4


def prompts_of(count, seed=5):
    """Prompts that share beginnings of many lengths, some of them whole."""
    source = random.Random(seed)
    made = [[source.randrange(97, 123) for _ in range(120)] for _ in range(3)]
    while len(made) < count:
        other = source.choice(made)
        at = source.randrange(1, len(other) + 1)
        made.append(other[:at] + [source.randrange(97, 123) for _ in range(source.randrange(0, 30))])
    return made[:count]


def ask(cluster, prompt, temperature=1, echo=False, n=1, tokens=TOKENS, **more):
    answer = cluster.complete(
        prompt, max_tokens=tokens, temperature=temperature, top_p=1, seed=sum(prompt), ignore_eos=True,
        logprobs=2, echo=echo, n=n, return_token_ids=True, **more,
    )  # fmt: skip
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    choices = []
    for choice in answer["choices"]:
        logprobs = choice["logprobs"]
        top = [sorted((one or {}).items()) for one in logprobs["top_logprobs"]]
        bits = [float32_bits([number for _, number in one]) for one in top]
        ids = choice["token_ids"]
        assert len(ids) == tokens
        choices.append((ids, float32_bits(logprobs["token_logprobs"]), bits))
    return choices, cached


def metric(cluster, name):
    lines = get(cluster.base_url, "/metrics").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"troupe:{name}"))


def wishes(count=14):
    """(prompt, fields) of requests; some are scored, some have several choices."""
    made = []
    for i, prompt in enumerate(prompts_of(count)):
        made.append((prompt, {"temperature": i % 2, "echo": i % 5 == 3, "n": 3 if i % 7 == 4 else 1}))
    return made


def long_wishes(count):
    """Nothing is shared, and each needs 190 tokens of the cache in the end."""
    source = random.Random(count)
    return [([source.randrange(97, 123) for _ in range(100)], {"tokens": 90}) for _ in range(count)]


@functools.cache
def uncached(model, long=0):
    """Every answer of one process that computes all rows."""
    with Cluster() as cluster:
        cluster.up(model, "--no-enable-prefix-caching", *SMALL, workers=1)
        answers = [ask(cluster, prompt, **fields) for prompt, fields in wishes() + long_wishes(long)]
        assert all(cached == 0 for _, cached in answers)
        assert metric(cluster, "prefix_cache_queries_total") == 0
        assert cluster.status()["replicas"][0]["kv_blocks_cached"] == 0
        return [choices for choices, _ in answers]


def at_rest(cluster):
    replicas = cluster.status()["replicas"]
    return all(r["kv_blocks_used"] == r["running"] == r["waiting"] == 0 for r in replicas)


@functools.cache
def bytes_a_block(model):
    with Cluster() as cluster:
        cluster.up(model, "--kv-cache-memory", 1 << 20, "--block-size", BLOCK, "--max-model-len", 256,
                   "--data-parallel-size", 1)  # fmt: skip
        return -(-(1 << 20) // cluster.status()["replicas"][0]["kv_blocks_total"])


@pytest.mark.parametrize("layout", [
    "--pipeline-parallel-size 2 --data-parallel-size 1 --max-num-batched-tokens 24",
    *(pytest.param(f"--data-parallel-size {n}", marks=pytest.mark.long) for n in (1, 2)),
])  # fmt: skip
@pytest.mark.parametrize(
    "model", [pytest.param(V3, marks=pytest.mark.long), pytest.param(V2_LITE, marks=pytest.mark.long), DEMO],
    ids=lambda path: path.name,
)
def test_same_tokens_cold_warm_and_at_once(troupe, model, layout):
    expected = uncached(model)
    with Cluster() as cluster:
        cluster.up(model, *SMALL, "--block-size", BLOCK, *layout.split())
        asked = wishes()
        cold = [ask(cluster, prompt, **fields) for prompt, fields in asked]
        assert [choices for choices, _ in cold] == expected
        warm = [ask(cluster, prompt, **fields) for prompt, fields in asked]
        assert [choices for choices, _ in warm] == expected
        for (prompt, fields), (_, cached) in zip(asked, warm):
            # The last row is computed, and what is scored.
            assert cached == (0 if fields["echo"] else (len(prompt) - 1) // BLOCK * BLOCK)
        order = list(range(len(asked))) * 2
        random.Random(1).shuffle(order)
        crowd = at_once(lambda i: ask(cluster, asked[i][0], **asked[i][1])[0], order)
        assert crowd == [expected[i] for i in order]
        assert 0 < metric(cluster, "prefix_cache_hits_total") < metric(cluster, "prefix_cache_queries_total")
        wait_until(lambda: at_rest(cluster), "nothing is held")
        keeps = lambda: any(r["kv_blocks_cached"] > 0 for r in cluster.status()["replicas"])  # noqa: E731
        wait_until(keeps, "what was computed is kept")


@pytest.mark.parametrize("sequences", [2, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 5))])
def test_same_tokens_while_blocks_run_out(troupe, sequences):
    """A cache of a few sequences, and many at once: what is kept is evicted, who runs is preempted."""
    blocks = sequences * (200 // BLOCK) + 3
    with Cluster() as cluster:
        cluster.up(DEMO, "--kv-cache-memory", blocks * bytes_a_block(DEMO), "--block-size", BLOCK,
                   "--max-model-len", 200, "--data-parallel-size", 1)  # fmt: skip
        long = 3 * sequences
        made = wishes() + long_wishes(long)
        asked = [(i, wish) for i, wish in enumerate(made) if wish[1].get("n", 1) == 1]
        again = asked * 2
        random.Random(sequences).shuffle(again)
        asked = asked[-long:] + again  # the long ones at once
        answers = at_once(lambda one: ask(cluster, one[1][0], **one[1][1])[0], asked)
        assert answers == [uncached(DEMO, long)[i] for i, _ in asked]
        wait_until(lambda: at_rest(cluster), "nothing is held")
        replica = cluster.status()["replicas"][0]
        assert replica["kv_blocks_total"] < 300
        if sequences > 1:
            wait_until(lambda: cluster.status()["replicas"][0]["preemptions"] > 0, "some had to wait")
        assert metric(cluster, "prefix_cache_hits_total") > 0


def test_same_tokens_while_workers_are_killed(stages):
    stage = stages("--data-parallel-size", 2, "--block-size", BLOCK, *SMALL, workers=3)
    asked = [(i, wish) for i, wish in enumerate(wishes()) if not wish[1]["echo"]] * 6
    random.Random(3).shuffle(asked)
    ended = threading.Event()

    def kill():
        while not ended.wait(1.5):
            status = stage.status_or_none()
            running = [r for r in status["replicas"] if r["running"]] if status else []
            if not running:
                continue
            host = running[0]["shards"][0]["device"].split("/")[0]
            node = next((n for n in status["nodes"] if n["id"] == host and n["state"] != "lost"), None)
            if node is None:
                continue
            worker_of(stage, node).kill(signal.SIGKILL)
            stage.living()
            stage.add_worker()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        while stage.status()["requests"]["replayed"] < 8:
            assert killer.is_alive()
            answers = at_once(lambda one: ask(stage, one[1][0], **one[1][1])[0], asked, threads=16)
            assert answers == [uncached(DEMO)[i] for i, _ in asked]
    finally:
        ended.set()
        killer.join()
    stage.living()
    assert not stage.crashes
    wait_until(lambda: at_rest(stage), "nothing is held")


def test_a_sequence_goes_to_the_replica_that_has_its_beginning(cluster):
    cluster.up(DEMO, *SMALL, "--data-parallel-size", 2)
    wait_until(lambda: all(r["state"] == "ready" for r in cluster.status()["replicas"]), "both serve")
    prompts = [[97 + i] * 200 for i in range(6)]
    found = at_once(lambda prompt: ask(cluster, prompt, tokens=200), prompts)
    assert [cached for _, cached in found] == [0] * 6
    for prompt in reversed(prompts):
        assert ask(cluster, prompt)[1] == 192
    caching = lambda: [r for r in cluster.status()["replicas"] if r["kv_blocks_cached"] > 0]  # noqa: E731
    wait_until(lambda: len(caching()) == 2, "both tell what they keep")


@pytest.mark.parametrize("model", [V3, DEMO], ids=lambda path: path.name)
def test_an_answer_is_found_in_the_prompt_of_the_next_turn(troupe, model):
    turns = [97, 110, 99, 120, 104]
    answers = []
    for flags in ([], ["--no-enable-prefix-caching"]):
        with Cluster() as cluster:
            cluster.up(model, *flags, *SMALL, "--block-size", BLOCK, workers=1)
            said, told = list(turns), []
            for turn in range(4):
                (choice,), cached = ask(cluster, said, temperature=turn % 2)
                told.append(choice)
                # The last token of the answer had no row yet.
                known = len(said) - len(turns) - 1 if turn else 0
                assert cached == (0 if flags else known // BLOCK * BLOCK)
                said += choice[0] + turns
            answers.append(told)
    assert answers[0] == answers[1]


def test_a_stream_ends_with_what_was_found(cluster):
    cluster.up(DEMO, *SMALL, workers=1)
    body = {"messages": [{"role": "user", "content": "What is a blorft? " * 6}], "max_tokens": 4,
            "stream": True, "stream_options": {"include_usage": True}}  # fmt: skip
    found = []
    for _ in range(2):
        stream = Stream(cluster, {"key": 0, "path": "/v1/chat/completions", "body": body}).wait()
        last = json.loads(events_of(stream.body)[-2])
        found.append(last["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert found[0] == 0 and found[1] > 0 and found[1] % 16 == 0


def test_a_long_prompt_whose_beginning_is_known_is_answered_at_once(cluster):
    """The promise is 12 % of the time of a prompt of 2,000 tokens, when 1,900 of them are known."""
    cluster.up(DEMO, *SMALL, workers=1)
    source = random.Random(9)

    def tokens(count):
        return [source.randrange(97, 123) for _ in range(count)]

    def first_token_s(prompt):
        before = metric(cluster, "time_to_first_token_seconds_sum")
        cluster.complete(prompt, max_tokens=1, ignore_eos=True)
        return metric(cluster, "time_to_first_token_seconds_sum") - before

    cluster.complete(tokens(2000), max_tokens=1)  # whatever is slow the first time
    rounds = []
    for _ in range(5):
        shared = tokens(1900)
        rounds.append((first_token_s(shared + tokens(100)), first_token_s(shared + tokens(100))))
    cold, warm = (sorted(times)[2] for times in zip(*rounds))
    promises.ratio(f"a prompt of 2,000 tokens, 1,900 known (cold: {cold * 1000:.0f} ms)", warm / cold, 0.12,
                   broken=1)  # fmt: skip
