"""build/bench/results.json keeps what was measured last of each figure; RESULTS.md is made from it."""

import datetime
import json
import os
import re
import subprocess
from dataclasses import asdict
from pathlib import Path

from checkpoints import KEPT, ROOT
from programs import THREADS, cpu_family
from rows import Line

RESULTS = ROOT / "tests" / "bench" / "RESULTS.md"
KEPT_RESULTS = KEPT / "results.json"


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--", ".", f":!{RESULTS.relative_to(ROOT)}")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def processor():
    name = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
    return f"{name}, {os.cpu_count()} processors, {cpu_family()}"


def keep(group, lines, quick):
    """Notes the lines of one measurement in place of its last ones."""
    kept = json.loads(KEPT_RESULTS.read_text()) if KEPT_RESULTS.exists() else {}
    if kept.get("processor") != processor():
        kept = {"processor": processor(), "groups": {}}  # figures of another machine mean nothing here
    kept["groups"][group] = {
        "date": datetime.date.today().isoformat(), "commit": commit(), "quick": quick,
        "load": round(os.getloadavg()[1], 1), "lines": [asdict(line) for line in lines],
    }  # fmt: skip
    KEPT_RESULTS.write_text(json.dumps(kept, indent=1))
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
        if group["load"] > 1.5 * THREADS:
            when += f", load {group['load']}"
        for entry in group["lines"]:
            line = Line(**entry)
            now = "–" if line.value is None else number(line.value)
            goal = ("at most " if line.less_is_better else "") + number(line.goal)
            yield f"| {line.figure} | {now} | {goal} | {verdict(line)} | {when} |"


def details(groups, order):
    for name in [name for name in order if name in groups]:
        yield f"- `{name}`"
        for line in groups[name]["lines"]:
            yield f"  - {line['figure']}: {line['detail']}."


def write(kept, order):
    groups = kept["groups"]
    missing = [name for name in order if name not in groups]
    text = [
        "# Measured", "",
        f"By `tests/bench/run` on {kept['processor']}; {THREADS} threads each. What every figure is, and "
        "how it is taken, is in", "[README.md](README.md). Nothing here is part of pass or fail.", "",
        *table(groups, order), "",
    ]  # fmt: skip
    if missing:
        text += [f"Not run yet: {', '.join(missing)}.", ""]
    text += ["Ours stands left of a colon.", "", *details(groups, order)]
    RESULTS.write_text("\n".join(text) + "\n")
