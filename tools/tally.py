"""Counts the tests of a run of tools/test from its reports: every test case of a C++ program, every
pytest test. Prints what failed and, as the last line, `N passed, N failed`."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

DOCTEST_SUMMARY = re.compile(r"\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed")


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


def tally(report):
    """(passed, failed, names of what failed) of one JUnit file."""
    passed, failed, names = 0, 0, []
    count = tally_pytest if report.stem == "pytest" else tally_program
    for case in ElementTree.parse(report).iter("testcase"):
        case_passed, case_failed = count(case)
        passed += case_passed
        failed += case_failed
        if case_failed:
            names.append(f"{case.get('classname', '')} {case.get('name')}")
    return passed, failed, names


def main(folder, names):
    passed, failed = 0, 0
    for name in names:
        report = folder / f"{name}.xml"
        # A run that ended before it wrote its report has failed.
        report_passed, report_failed, failures = 0, 1, ["no report was written"]
        if report.exists():
            report_passed, report_failed, failures = tally(report)
        passed += report_passed
        failed += report_failed
        print(f"{name}: {report_passed} passed, {report_failed} failed")
        for failure in failures:
            print(f"  failed: {failure}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
