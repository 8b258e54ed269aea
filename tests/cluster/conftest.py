"""Fixtures of the tests that hurt clusters and compare every bit of what they answer."""

import contextlib
import fcntl
import os
import pickle

import pytest

import network
from recovery import LASTING, MIXED, SMALL, settled
from running import DEMO, TROUPE, Cluster, wait_until
from stage import Stage
from streams import Stream


def answers_without_faults():
    with Cluster() as cluster:
        cluster.up(DEMO, *SMALL, workers=1, threads=None)
        streams = [Stream(cluster, request) for request in [*LASTING, *MIXED]]
        assert not [stream.error for stream in streams if stream.wait().error]
        return {stream.request["key"]: stream.answer for stream in streams}


@pytest.fixture(scope="session")
def expected(troupe, tmp_path_factory, testrun_uid):
    """Every answer, from one worker without faults. Of processes that run tests side by side, one asks."""
    kept = tmp_path_factory.getbasetemp().parent / f"expected-{testrun_uid}"
    with open(f"{kept}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_bytes(pickle.dumps(answers_without_faults()))
    return pickle.loads(kept.read_bytes())


@contextlib.contextmanager
def making_stages(make_network):
    """Gives a function that makes stages; they are ended whatever happens."""
    made = []

    def make(*flags, workers=2, program=TROUPE):
        stage = Stage(make_network(), flags, program=program)
        made.append(stage)
        stage.start_head()
        for _ in range(workers):
            stage.add_worker()
        if workers:
            stage.wait_ready()
            wait_until(lambda: len(stage.ready_nodes()) == workers, f"{workers} workers are used")
            settled(stage)
        return stage

    try:
        yield make
    finally:
        for stage in made:
            stage.close()


@pytest.fixture
def stages(troupe):
    with making_stages(network.Direct) as make:
        yield make


@pytest.fixture
def proxied(troupe):
    """As `stages`, with a proxy between each worker and the head."""
    with making_stages(network.Proxies) as make:
        yield make


@pytest.fixture
def namespaces(troupe):
    """As `stages`, in a network whose links can be cut."""
    with network.private() as inside:
        if not inside:
            pytest.skip("network namespaces need root, ip and unshare")
        with making_stages(lambda: network.Namespaces(f"{os.getpid():x}")) as make:
            yield make
