"""results.json keeps what was measured last of each figure on each processor; RESULTS.md is made from it."""

import datetime
import json
import os
import re
import subprocess
from dataclasses import asdict
from pathlib import Path

from checkpoints import ROOT
from programs import THREADS, cpu_family
from rows import Line

RESULTS = ROOT / "tests" / "bench" / "RESULTS.md"
KEPT_RESULTS = RESULTS.with_name("results.json")


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--", ".", *(f":!tests/bench/{path.name}"
                                                        for path in (RESULTS, KEPT_RESULTS)))
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def processor():
    name = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
    return f"{name}, {THREADS} processors, {cpu_family()}"


def keep(group, lines, quick, seconds):
    """Notes the lines of one measurement in place of its last ones on such a processor."""
    kept = json.loads(KEPT_RESULTS.read_text()) if KEPT_RESULTS.exists() else {}
    kept.setdefault(processor(), {})[group] = {
        "date": datetime.date.today().isoformat(), "commit": commit(), "quick": quick,
        "seconds": round(seconds), "load": round(os.getloadavg()[1], 1), "threads": THREADS,
        "lines": [asdict(line) for line in lines],
    }  # fmt: skip
    KEPT_RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return kept


def number(value):
    return f"{value:.0f}" if value >= 20 else f"{value:.2f}"


def verdict(line):
    if line.value is None:
        return "not measured"
    return "yes" if line.kept() else "**behind**"


def table(groups, order):
    yield "| figure | now | must reach | reached | measured |"
    yield "|---|---|---|---|---|"
    for name in [name for name in order if name in groups]:
        group = groups[name]
        when = f"{group['date']}, {group['commit']}" + (", quick" if group["quick"] else "")
        if group["load"] > 1.5 * group["threads"]:
            when += f", load {group['load']}"
        for entry in group["lines"]:
            line = Line(**entry)
            now = "–" if line.value is None else number(line.value)
            goal = ("at most " if line.less_is_better else "") + number(line.goal)
            yield f"| {line.figure} | {now} | {goal} | {verdict(line)} | {when} |"


def details(groups, order):
    for name in [name for name in order if name in groups]:
        took = groups[name].get("seconds")
        yield f"- `{name}`" + (f", {took} s" if took else "")
        for line in groups[name]["lines"]:
            yield f"  - {line['figure']}: {line['detail']}."


def write(kept, order):
    text = [
        "# Measured", "",
        "By `tests/bench/run`, as many threads as processors. What every figure is, and how it is",
        "taken, is in [README.md](README.md). Nothing here is part of pass or fail. What stands behind a",
        "figure follows the table, ours left of a colon, and the seconds that the row took.", "",
    ]  # fmt: skip
    for name, groups in sorted(kept.items()):
        text += [f"## {name}", "", *table(groups, order), ""]
        if missing := [name for name in order if name not in groups]:
            text += [f"Not run yet: {', '.join(missing)}.", ""]
        text += [*details(groups, order), ""]
    RESULTS.write_text("\n".join(text).rstrip("\n") + "\n")
