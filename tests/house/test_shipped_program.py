"""The shipped program has no test doubles: no environment variable crashes a worker of it."""

import pytest

from running import TESTING

# What the environment asks of doubles, the namespace of a GPU's twin, the fibers that it runs on, and the
# back-end with wrong last bits.
DOUBLES = [b"TROUPE_TEST_", b"cuda_twin", b"make_fcontext", b"SpoiltBackend"]


@pytest.mark.parametrize("double", DOUBLES, ids=lambda double: double.decode())
def test_the_program_has_no_double(troupe, double):
    assert double in TESTING.read_bytes(), f"{TESTING} has none either: look for what it has"
    assert double not in troupe.read_bytes()
