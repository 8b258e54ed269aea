"""What the tests of the web page share."""

import urllib.request

import pytest


@pytest.fixture(scope="session")
def page(server):
    """(html, headers) as the program serves them."""
    with urllib.request.urlopen(server.base_url + "/", timeout=60) as response:
        return response.read().decode(), dict(response.headers)
