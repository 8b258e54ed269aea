"""Steps of a check, each under a limit of its own and all under one; what comes of each is a row."""

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass


class NotMeasured(Exception):
    """The machine lacks what the step needs; that says nothing about the code."""


class Failed(Exception):
    """What was measured is wrong, or did not end."""


@dataclass
class Row:
    what: str
    result: str  # "measured" (or "dry run"), "failed", "not measured"
    text: str = ""  # the figure, or why
    must: str = ""


class Check:
    """Runs steps until the time is up."""

    def __init__(self, out, seconds, env, measured="measured"):
        self.out = out
        self.measured = measured  # what a row is called that has its figure
        self.end = time.monotonic() + seconds
        self.env = env
        self.rows = []
        self.step_end = self.end

    def left(self):
        return min(self.end, self.step_end) - time.monotonic()

    def steps(self, steps):
        """Each is (what, least, most, function): it ends soon enough for those behind it to have their
        least, and has what those before it left."""
        share = min(1, (self.end - time.monotonic()) / sum(least for _, least, _, _ in steps))
        for i, (what, _, most, function) in enumerate(steps):
            behind = share * sum(least for _, least, _, _ in steps[i + 1 :])
            self.step(what, min(share * most, self.end - time.monotonic() - behind), function)

    def step(self, what, seconds, function):
        """A row of what the function says; rows that it added itself stay."""
        self.step_end = min(self.end, time.monotonic() + seconds)
        started = time.monotonic()
        try:
            if self.left() < 1:
                raise NotMeasured("the time was up")
            text = function()
            row = Row(what, self.measured, text) if text else None
        except NotMeasured as reason:
            row = Row(what, "not measured", str(reason))
        except Failed as reason:
            row = Row(what, "failed", str(reason))
        except (AssertionError, OSError, ValueError, KeyError) as reason:
            row = Row(what, "failed", f"{type(reason).__name__}: {reason}".split("\n")[0][:300])
        if row:
            self.add(row)
        print(f"   {what}: {time.monotonic() - started:.1f} s", flush=True)

    def add(self, row):
        self.rows.append(row)
        must = f" (must be {row.must})" if row.must else ""
        print(f"-- {row.what}: {row.result}{': ' if row.text else ''}{row.text}{must}", flush=True)

    def run(self, name, words, env=None, good=(0,)):
        """A command's output, which is kept in `out` as well. Never longer than the step may take."""
        log = self.out / f"{name}.log"
        words = [str(word) for word in words]
        with open(log, "wb") as file:
            try:
                process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT,
                                           stdin=subprocess.DEVNULL, start_new_session=True,
                                           env={**self.env, **(env or {})})
            except OSError as error:
                raise NotMeasured(f"{words[0]} cannot be run: {error.strerror}") from None
            try:
                process.wait(max(1, self.left()))
            except subprocess.TimeoutExpired:
                raise Failed(f"no end within its time; see {log.name}") from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        text = log.read_text(errors="replace")
        if process.returncode not in good:
            last = next((line for line in reversed(text.splitlines()) if line.strip()), "no output")
            raise Failed(f"exit code {process.returncode} ({last.strip()[:200]}); see {log.name}")
        return text


def rows_of_bench(text, measured):
    """What gpu_bench printed, as rows; a row that is cut off is left out."""
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if "device" in found:
            continue
        if "not_measured" in found:
            yield Row(found["row"], "not measured", found["not_measured"])
            continue
        figure = f"{found['value']:.4g} {found['unit']}"
        if "ratio" in found:
            figure += f", {found['ratio']:.2f} of the {found['of']}"
        needs = found.get("needs")
        at_most = found.get("at_most")
        reached = found.get("ratio", found["value"])
        if needs and reached < needs:
            figure += ", **too little**"
        if at_most and found["value"] > at_most:
            figure += ", **too much**"
        must = f"{needs}" if needs else f"at most {at_most}" if at_most else ""
        yield Row(found["row"], measured, figure, must)


def table(rows):
    lines = ["| what | result | | must be |", "|---|---|---|---|"]
    for row in rows:
        cells = (row.what, row.result, row.text, row.must)
        lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
