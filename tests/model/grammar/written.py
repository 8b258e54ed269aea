"""Asks the program in write_grammars.cpp for grammars."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("TROUPE", ROOT / "build" / "troupe")).parent
PROGRAM = BUILD / "tests/model/grammar/write_grammars"


def answers(orders):
    """One {"grammar"} or {"error"} for each order."""
    done = subprocess.run([PROGRAM], input="".join(json.dumps(order) + "\n" for order in orders).encode(),
                          stdout=subprocess.PIPE, timeout=600, check=True)
    out = [json.loads(line) for line in done.stdout.split(b"\n") if line]
    assert len(out) == len(orders)
    return out


def answer(**order):
    return answers([order])[0]


def with_deep_stack(work):
    """Runs it where recursion is as deep as sentences are long."""
    failure = []

    def run():
        try:
            work()
        except BaseException as error:  # handed on below
            failure.append(error)

    sys.setrecursionlimit(200_000)
    before = threading.stack_size(256 << 20)
    thread = threading.Thread(target=run)
    thread.start()
    threading.stack_size(before)
    thread.join()
    if failure:
        raise failure[0]
