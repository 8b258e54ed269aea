"""Counts the tests of a run of tools/test from its reports: every test case of a C++ program, every
pytest test; a phase that was ended, since it took too long, has failed. Prints what failed, what was
skipped and why, with --times what took how long, and as the last line `N passed, N failed, N skipped`."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

DOCTEST_SUMMARY = re.compile(r"\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed")
TIMES_SHOWN = 12


def tally_program(case):
    """A program that ctest ran: its doctest cases, or itself if it has none."""
    ran_well = case.get("status") == "run"
    output = case.findtext("system-out") or ""
    summaries = DOCTEST_SUMMARY.findall(re.sub(r"\x1b\[[0-9;]*m", "", output))
    passed = sum(int(summary[0]) for summary in summaries)
    failed = sum(int(summary[1]) for summary in summaries)
    if not summaries:
        passed = int(ran_well)
    # A program that crashed, or that a sanitizer stopped, failed whatever its summary says.
    return passed, failed if ran_well or failed > 0 else 1


def tally_pytest(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return 0, 1
    return (0, 0) if case.find("skipped") is not None else (1, 0)


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


class Report:
    """What one JUnit file tells."""

    def __init__(self, path):
        self.name = path.stem
        # What ended before it wrote its report has failed.
        self.passed, self.failed, self.failures = 0, 1, ["no report was written"]
        self.skips = Counter()  # by reason
        self.seconds = Counter()  # by program or file
        if not path.exists():
            return
        self.failed, self.failures = 0, []
        pytest = path.stem.startswith("pytest")
        for case in ElementTree.parse(path).iter("testcase"):
            passed, failed = (tally_pytest if pytest else tally_program)(case)
            self.passed += passed
            self.failed += failed
            if failed:
                self.failures.append(f"{case.get('classname', '')} {case.get('name')}")
            skipped = case.find("skipped")
            if skipped is not None:
                self.skips[skipped.get("message") or "no reason given"] += 1
            part = case.get("classname") if pytest else case.get("name")
            self.seconds[part or "?"] += float(case.get("time") or 0)


def print_times(folder, reports):
    print("what took how long:")
    for line in lines_of(folder / "phases"):
        seconds, phase = line.split(" ", 1)
        print(f"{seconds:>6} s  {phase}")
    for report in reports:
        print(f"{report.name}, the longest of {len(report.seconds)}:")
        for part, seconds in report.seconds.most_common(TIMES_SHOWN):
            print(f"{seconds:6.0f} s  {part}")


def main(folder, names, times):
    overran = lines_of(folder / "overran")
    reports = [Report(folder / f"{name}.xml") for name in names]
    if times:
        print_times(folder, reports)
    for report in reports:
        print(f"{report.name}: {report.passed} passed, {report.failed} failed")
        for failure in report.failures:
            print(f"  failed: {failure}")
    skips = sum((report.skips for report in reports), Counter())
    if skips:
        print(f"{skips.total()} skipped:")
    for reason, count in sorted(skips.items()):
        print(f"  {count}: {reason}")
    for line in overran:
        print(f"failed: {line}")
    passed = sum(report.passed for report in reports)
    failed = sum(report.failed for report in reports) + len(overran)
    print(f"{passed} passed, {failed} failed, {skips.total()} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--times"]
    sys.exit(main(Path(words[0]), words[1:], len(words) < len(sys.argv[1:])))
