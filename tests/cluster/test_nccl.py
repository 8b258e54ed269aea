"""Tensor-parallel ranks that exchange by NCCL, and rows and outputs that go by it, played by its double
(tests/transport/nccl/double.h), on CPUs: the same tokens, whatever goes wrong."""

import concurrent.futures
import os
import signal

import pytest

from running import DEMO, TESTING, Cluster, generate, run, wait_until

DOUBLE = TESTING.parent / "tests" / "transport" / "nccl" / "libnccl_double.so"
PROMPT = [5, 9, 33]
TOKENS = 300
FORMED = "exchange by NCCL from now on"


@pytest.fixture(scope="module")
def expected(troupe):
    ids = ",".join(map(str, PROMPT))
    return generate(
        DEMO, "--prompt-ids", ids, "--max-tokens", TOKENS, "--ignore-eos", "--temperature", 1,
        "--top-p", 1, "--seed", 7, "--threads", 1,
    )["tokens"]  # fmt: skip


@pytest.fixture
def start():
    """Starts a cluster; `mischief` is what the double does."""
    with Cluster() as cluster:

        def start(mischief, *words, **keywords):
            cluster.env |= {"TROUPE_TEST_NCCL": str(DOUBLE), "TROUPE_NCCL_DOUBLE": mischief}
            cluster.up(DEMO, "--fabric", "nccl", *words, program=TESTING, **keywords)
            return cluster

        yield start


@pytest.fixture
def ranks(start):
    """Two ranks, each on a worker."""
    return lambda mischief: start(mischief, "--tensor-parallel-size", 2)


@pytest.fixture
def spread(start):
    """A replica whose experts are on several workers."""
    return lambda mischief, workers: start(mischief, "--data-parallel-size", 1, workers=workers)


def tokens_of(cluster):
    choice = cluster.complete(
        PROMPT, max_tokens=TOKENS, temperature=1, seed=7, top_p=1, ignore_eos=True, return_token_ids=True
    )["choices"][0]
    return choice["token_ids"][-TOKENS:]


def times_said(cluster, text):
    return cluster.processes[0].log().count(text)


def wait_formed(cluster, times=1, text=FORMED):
    """Forming begins with the first step, and is tried again after a while."""

    def formed():
        if times_said(cluster, text) >= times:
            return True
        cluster.complete(PROMPT, max_tokens=4)
        return False

    wait_until(formed, f"{times} times '{text}'")


def test_the_same_tokens_by_nccl(ranks, expected):
    cluster = ranks("delay=200;seed=3")
    wait_formed(cluster)
    assert tokens_of(cluster) == expected
    assert times_said(cluster, "exchange by messages") == 0, cluster.logs()
    for node in cluster.ready_nodes():
        assert "tensor-parallel ranks by NCCL 2.28.9 (asked for)" in node["fabric"]


def test_a_communicator_that_breaks_changes_no_token(ranks, expected):
    cluster = ranks("break=500")
    wait_formed(cluster)
    assert tokens_of(cluster) == expected
    assert times_said(cluster, "exchange by messages") > 0, cluster.logs()
    wait_formed(cluster, 2)
    assert tokens_of(cluster) == expected


@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_killed_rank_changes_no_token(ranks, expected, which):
    cluster = ranks("quiet=1")
    wait_formed(cluster)
    node = cluster.ready_nodes()[which]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        tokens = pool.submit(tokens_of, cluster)
        wait_until(lambda: cluster.status()["requests"]["running"] == 1, "it runs")
        os.kill(node["pid"], signal.SIGKILL)
        assert tokens.result(120) == expected
    assert cluster.status()["requests"]["replayed"] == 1
    # Said once, or not at all where the placement without that rank came first.
    assert times_said(cluster, "exchange by messages: A tensor-parallel rank") <= 1, cluster.logs()


def test_nccl_that_cannot_be_had_is_a_sentence(troupe, tmp_path):
    def refusal(nccl):
        env = {"TROUPE_STATE_DIR": str(tmp_path / "state"), **({"TROUPE_TEST_NCCL": nccl} if nccl else {})}
        done = run("up", "--model", DEMO, "--fabric", "nccl", env=env, program=TESTING)
        assert done.returncode == 1, done.stderr
        assert not (tmp_path / "state").exists()
        return done.stderr

    assert "NCCL moves the memory of GPUs, and device 0 of a worker is a cpu device" in refusal(None)
    assert "/nowhere/libnccl.so.2 cannot be loaded" in refusal("/nowhere/libnccl.so.2")
    assert "lacks ncclGetVersion; install NCCL" in refusal("libm.so.6")


# --- Rows and outputs -----------------------------------------------------------------------------

ROWS_FORMED = "go by NCCL from now on"
ROWS_OTHERWISE = "go by the other fabric"


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.long), 4])
def test_rows_and_outputs_by_nccl_are_the_same_tokens(spread, expected, workers):
    cluster = spread("delay=200;seed=3", workers)
    wait_formed(cluster, 2 * (workers - 1), ROWS_FORMED)  # to each, and back
    assert tokens_of(cluster) == expected
    assert times_said(cluster, ROWS_OTHERWISE) == 0, cluster.logs()
    for node in cluster.ready_nodes():
        assert "rows, outputs and tensor-parallel ranks by NCCL 2.28.9 (asked for)" in node["fabric"]


def test_rows_whose_communicator_breaks_change_no_token(spread, expected):
    cluster = spread("break=200", 2)
    wait_formed(cluster, 2, ROWS_FORMED)
    assert tokens_of(cluster) == expected
    assert times_said(cluster, ROWS_OTHERWISE) > 0, cluster.logs()
    wait_formed(cluster, 3, ROWS_FORMED)
    assert tokens_of(cluster) == expected
    assert cluster.status()["requests"]["replayed"] == 0


@pytest.mark.parametrize("mischief", ["quiet=1", pytest.param("delay=100", marks=pytest.mark.long)])
def test_a_killed_worker_of_four_changes_no_token_of_rows_by_nccl(spread, expected, mischief):
    cluster = spread(mischief, 4)
    wait_formed(cluster, 6, ROWS_FORMED)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        tokens = [pool.submit(tokens_of, cluster) for _ in range(4)]
        wait_until(lambda: cluster.status()["requests"]["running"] == 4, "they run")
        os.kill(cluster.ready_nodes()[-1]["pid"], signal.SIGKILL)
        assert all(t.result(120) == expected for t in tokens)
    assert cluster.status()["requests"]["failed"] == 0


# --- Accelerators ---------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("mischief", [
    "delay=200;seed=3", "break=200",
])  # fmt: skip
def test_twins_by_nccl_answer_as_processors(start, mischief):
    """What they exchange is in pinned memory, and goes from where it is."""
    count = 40
    alone = generate(
        DEMO, "--prompt-ids", ",".join(map(str, PROMPT)), "--max-tokens", count, "--ignore-eos",
        "--temperature", 1, "--top-p", 1, "--seed", 7, "--threads", 1, "--numerics", "bf16",
    )["tokens"]  # fmt: skip
    cluster = start(mischief, "--tensor-parallel-size", 2, "--device", "cuda-twin", "--device-memory", "2GiB",
                    "--numerics", "bf16")  # fmt: skip
    wait_formed(cluster)
    choice = cluster.complete(PROMPT, max_tokens=count, temperature=1, seed=7, top_p=1, ignore_eos=True,
                              return_token_ids=True)["choices"][0]  # fmt: skip
    assert choice["token_ids"][-count:] == alone
    assert (times_said(cluster, "exchange by messages") > 0) == mischief.startswith("break"), cluster.logs()
