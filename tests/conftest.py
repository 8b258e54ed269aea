"""Fixtures of the tests that run the program from outside."""

import os
import signal
import types

import pytest

import promises
import running


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", default="TROUPE_LONG" in os.environ,
                     help="also the tests that others stand for, or that take many minutes")


def pytest_configure(config):
    if config.getoption("--long"):
        os.environ["TROUPE_LONG"] = "1"  # for what is read while tests are collected
    # A shell starts what runs in the background without SIGINT, and children would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "long: others stand for it, or it takes minutes; only with --long")
    config.addinivalue_line("markers", "alone: it measures the machine, or counts what is on it; nothing "
                                       "may run beside it")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    items[:] = [item for item in items if not item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item):
    # They go with the reports, which come from other processes where tests run side by side.
    item.user_properties += [("promise", line) for line in promises.TOLD]
    promises.TOLD.clear()


def pytest_terminal_summary(terminalreporter):
    # All that a test has told is in its last report.
    reports = [report for some in terminalreporter.stats.values() for report in some
               if getattr(report, "when", None) == "teardown"]  # fmt: skip
    told = [line for report in reports for name, line in report.user_properties if name == "promise"]
    if told:
        terminalreporter.section("promised times")
        for line in told:
            terminalreporter.line(line)


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
        cluster.up(running.DEMO, threads=None)
        yield types.SimpleNamespace(
            base_url=cluster.base_url,
            model=running.DEMO.name,
            state_dir=cluster.state_dir,
            cluster=cluster,
        )
