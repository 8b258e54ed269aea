"""`troupe drain` and `troupe rebalance` on a cluster that serves."""

import concurrent.futures
import re

import pytest

from running import DEMO, Cluster, alive, run, wait_until
from screen import Screen

PROMPT = {"max_tokens": 400, "temperature": 0, "ignore_eos": True, "return_token_ids": True}


@pytest.fixture
def served(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO, "--redundant-experts", 4, workers=3)
        yield cluster


def refusal(cluster, *words):
    done = run(*words, env=cluster.env)
    lines = [line for line in done.stderr.splitlines() if line.startswith("troupe: ")]
    assert done.returncode == 1 and not done.stdout and len(lines) == 1, done.stderr
    return lines[0]


def pid_of(cluster, node):
    (pid,) = [n["pid"] for n in cluster.status()["nodes"] if n["id"] == node]
    return pid


def drain(cluster, name, node):
    pid = pid_of(cluster, node)
    done = run("drain", name, env=cluster.env)
    assert done.returncode == 0 and not done.stdout, done.stderr
    # It may be switched off: its process has ended or is about to, and nothing is on it.
    wait_until(lambda: not alive(pid), f"{node} has ended")
    status = cluster.status()
    assert node not in str(status["experts"]["placement"]) + str(status["replicas"])
    return done.stderr


def test_nodes_are_drained_under_load_until_one_is_left(served):
    prompts = [f"zq{i} xoru" for i in range(8)]
    ask = lambda prompt: served.complete(prompt, **PROMPT)["choices"][0]["token_ids"]  # noqa: E731
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        undisturbed = list(pool.map(ask, prompts))
        during = pool.map(ask, prompts)
        said = drain(served, "node-3", "node-3")
        assert re.search(r"\d+ copies to move off node-3", said)
        assert re.search(r"\d+ of \d+: (\d+ copies|1 copy) left to move", said)
        assert list(during) == undisturbed
        during = pool.map(ask, prompts)
        drain(served, "1", "node-1")  # a number is a name too
        assert list(during) == undisturbed
    assert "last worker" in refusal(served, "drain", "node-2")
    assert "node-2" in refusal(served, "drain", "node-77")  # names those that there are
    assert "node-2" in refusal(served, "drain", "node-1")  # it is gone
    assert served.state() == "ready" and ask(prompts[0]) == undisturbed[0]
    assert served.status()["requests"]["failed"] == 0


def test_a_rebalance_ends_when_it_is_done(served):
    for i in range(4):
        served.complete(f"word {i}", max_tokens=64, ignore_eos=True)
    done = run("rebalance", env=served.env)
    assert done.returncode == 0 and not done.stdout, done.stderr
    assert served.state() == "ready"
    assert served.status()["experts"]["last_rebalance_s"] is not None


def test_the_console_drains_and_rebalances(troupe, served):
    env = {**served.env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    with Screen([troupe, "top"], env) as screen:
        screen.wait("node-3")
        screen.press("by")
        screen.wait_match(r"Moved \d+ cop|cop(y|ies) left to move\.|Nothing had to move")
        screen.press("\x1b[F")  # End: the last node
        screen.press("d")
        screen.wait("Move everything off node-3 and let it leave?")
        screen.press("y")
        wait_until(lambda: len(served.ready_nodes()) == 2, "node-3 has left")
        screen.wait_match(r"node-3 .*(left|switched off)")
        screen.press("q")
        assert screen.exit_code() == 0
