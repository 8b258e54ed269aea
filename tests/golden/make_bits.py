#!/usr/bin/env python3
"""Writes bits.json: a hash of the tokens and log-probabilities of each model here and of the demo, for each
numerics. Every machine must give the same; who changes a number on purpose changes the numerics' version
(runtime/numerics.h, kernels/README.md), then runs this:

    TROUPE=build/troupe build/venv/bin/python tests/golden/make_bits.py
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import bits  # noqa: E402


def main():
    found = {}
    for model in bits.models():
        found[model.name] = {numerics: bits.bits_of(model, numerics) for numerics in bits.NUMERICS}
        print(model.name, file=sys.stderr)
    (HERE / "bits.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
