"""tests/bench/run, once everything is built."""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import report  # noqa: E402
import rows  # noqa: E402
import rows_cluster  # noqa: E402
import rows_grammar  # noqa: E402
import rows_plan  # noqa: E402
from checkpoints import GGUFS, MODELS, checkpoint, gguf  # noqa: E402

MEASUREMENTS = {
    "decode": rows.decode,
    "prefill": rows.prefill,
    "products": rows.products,
    "batch": rows.batch,
    "context": rows.context,
    "gap": rows.gap,
    "burst": rows.burst,
    "processes": rows_cluster.processes,
    "journal": rows_cluster.journal,
    "ranks": rows_cluster.ranks,
    "experts_read": rows_cluster.experts_read,
    "layer_across": rows_cluster.layer_across,
    "prefix": rows.prefix,
    "loading": rows.loading,
    "tokenizer": rows.tokenizer,
    "avx512_bf16": rows.avx512_bf16,
    "predicted": rows_plan.predicted,
    "schemas": rows_grammar.schemas,
    "ruled": rows_grammar.ruled,
}


def words():
    parser = argparse.ArgumentParser(
        prog="tests/bench/run", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures Troupe beside this machine's ceilings and llama.cpp, and writes\n"
        "tests/bench/RESULTS.md. Models and llama.cpp are made once and kept in build/bench/\n"
        "(12 GB). Run it on a machine that does nothing else.",
    )  # fmt: skip
    parser.add_argument("--only", metavar="NAME,...", default=",".join(MEASUREMENTS),
                        help="of " + ", ".join(MEASUREMENTS))
    parser.add_argument("--quick", action="store_true", help="one short round each: to try it, not to tell")
    parser.add_argument("--make", action="store_true", help="only make what will be measured")
    asked = parser.parse_args()
    asked.only = asked.only.split(",")
    if unknown := [name for name in asked.only if name not in MEASUREMENTS]:
        parser.error(f"there is no measurement {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}")
    return asked


def main():
    asked = words()
    if asked.make:
        for name in MODELS:
            checkpoint(name)
            if name in GGUFS:
                gguf(name)
        return 0
    how = rows.QUICK if asked.quick else rows.How()
    for name in asked.only:
        print(f"-- {name}", file=sys.stderr, flush=True)
        begun = time.monotonic()
        lines = MEASUREMENTS[name](how)
        for line in lines:
            value = "–" if line.value is None else report.number(line.value)
            goal = ("at most " if line.less_is_better else "") + report.number(line.goal)
            print(f"{value:>7} (must reach: {goal}) {line.figure}: {line.detail}", flush=True)
        seconds = time.monotonic() - begun
        print(f"   {seconds:.0f} s", file=sys.stderr, flush=True)
        report.write(report.keep(name, lines, asked.quick, seconds), MEASUREMENTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
