"""Fixtures of the tests that run the program from outside."""

import types

import pytest

import running


@pytest.fixture(scope="session")
def troupe():
    """The program: build/troupe, or what $TROUPE names."""
    assert running.TROUPE.exists(), f"{running.TROUPE} is missing; run tools/build first"
    return running.TROUPE


@pytest.fixture
def cluster(troupe):
    """A cluster that is not started yet, and is ended whatever happens."""
    with running.Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def server(troupe):
    """`troupe up` with the demo model and two workers."""
    with running.Cluster() as cluster:
        cluster.up(running.DEMO)
        yield types.SimpleNamespace(
            base_url=cluster.base_url,
            model=running.DEMO.name,
            state_dir=cluster.state_dir,
            cluster=cluster,
        )
