"""The same bits on every processor that the tests ever run on (tests/golden/make_bits.py)."""

import json

import pytest

import bits


@pytest.mark.parametrize("numerics", [
    pytest.param(name, marks=[] if name in ("bf16", "avx512_bf16") else pytest.mark.long)
    for name in bits.NUMERICS
])
def test_bits(numerics):
    if not bits.computed_here(numerics):
        pytest.skip("this processor lacks AVX-512 with bf16")
    known = json.loads(bits.KNOWN.read_text())
    found = {model.name: bits.bits_of(model, numerics) for model in bits.models()}
    assert found == {name: hashes[numerics] for name, hashes in known.items()}
