"""What the tests with other people's packages share."""

import pytest

import packages


@pytest.fixture(scope="session")
def clients_python():
    """The interpreter that has the clients."""
    try:
        return packages.installed()
    except packages.Unreachable as error:
        pytest.skip(f"build/venv-clients needs PyPI or a mirror of it, and none answers: {error}")
