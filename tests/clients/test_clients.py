"""Other people's clients against a running cluster, each as its manual has it. What they check runs in their
own environment: check_*.py, which pytest does not find by itself."""

import os
import subprocess

import pytest

import packages
import running
from tool_model import with_tools

# CI's brief run has the same requests by hand: tests/http.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(troupe, tmp_path_factory):
    with running.Cluster() as made:
        made.up(with_tools(tmp_path_factory.mktemp("model")), "--kv-cache-memory", "128MiB")
        yield made


@pytest.mark.parametrize("client", sorted(path.stem for path in packages.HERE.glob("check_*.py")))
def test_client(cluster, clients_python, client):
    done = subprocess.run(
        [clients_python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "--tb", "short",
         "--rootdir", packages.HERE, packages.HERE / f"{client}.py"],
        env={**os.environ, "TROUPE_TEST_URL": cluster.base_url + "/v1"},
        capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
