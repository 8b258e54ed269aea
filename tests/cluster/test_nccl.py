"""Tensor-parallel ranks that exchange by NCCL, played by its double (tests/transport/nccl/double.h), on
CPUs: the same tokens, whatever goes wrong."""

import concurrent.futures
import os
import signal

import pytest

from running import DEMO, TROUPE, Cluster, generate, run, wait_until

DOUBLE = TROUPE.parent / "tests" / "transport" / "nccl" / "libnccl_double.so"
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
def ranks():
    """Starts a cluster with two ranks, each on a worker; `mischief` is what the double does."""
    with Cluster() as cluster:

        def start(mischief="", *words):
            cluster.env |= {"TROUPE_TEST_NCCL": str(DOUBLE), "TROUPE_NCCL_DOUBLE": mischief}
            cluster.up(DEMO, "--tensor-parallel-size", 2, "--fabric", "nccl", *words)
            return cluster

        yield start


def tokens_of(cluster):
    choice = cluster.complete(
        PROMPT, max_tokens=TOKENS, temperature=1, seed=7, top_p=1, ignore_eos=True, return_token_ids=True
    )["choices"][0]
    return choice["token_ids"][-TOKENS:]


def times_said(cluster, text):
    return cluster.processes[0].log().count(text)


def wait_formed(cluster, times=1):
    """Forming begins with the first step, and is tried again after a while."""

    def formed():
        if times_said(cluster, FORMED) >= times:
            return True
        cluster.complete(PROMPT, max_tokens=4)
        return False

    wait_until(formed, 20, "the ranks exchange by NCCL")


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


@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_rank_changes_no_token(ranks, expected, which):
    cluster = ranks("quiet=1")
    wait_formed(cluster)
    node = cluster.ready_nodes()[which]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        tokens = pool.submit(tokens_of, cluster)
        wait_until(lambda: cluster.status()["requests"]["running"] == 1, 10, "it runs")
        os.kill(node["pid"], signal.SIGKILL)
        assert tokens.result(60) == expected
    assert cluster.status()["requests"]["replayed"] == 1
    assert times_said(cluster, "exchange by messages: A tensor-parallel rank") == 1, cluster.logs()


def test_nccl_that_cannot_be_had_is_a_sentence(troupe, tmp_path):
    def refusal(nccl):
        env = {"TROUPE_STATE_DIR": str(tmp_path / "state"), **({"TROUPE_TEST_NCCL": nccl} if nccl else {})}
        done = run("up", "--model", DEMO, "--fabric", "nccl", env=env)
        assert done.returncode == 1, done.stderr
        assert not (tmp_path / "state").exists()
        return done.stderr

    assert "NCCL moves the memory of GPUs, and device 0 of a worker is a cpu device" in refusal(None)
    assert "/nowhere/libnccl.so.2 cannot be loaded" in refusal("/nowhere/libnccl.so.2")
    assert "lacks ncclGetVersion; install NCCL" in refusal("libm.so.6")
