"""Measures recovery over many faults, one at a time, and writes REPORT.md beside this file.

    python3 tests/chaos/report.py [--faults 100] [--streams 8]

Each kind of fault is repeated on a cluster under load, with everything whole again in between. Exit code 0
only if nothing was lost, and replicas that were killed had their requests replayed. Times do not decide:
each row says what is promised, and whether that was kept every time.
"""

import argparse
import dataclasses
import datetime
import math
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import chaos  # noqa: E402
import faults  # noqa: E402
import heads  # noqa: E402
import measure  # noqa: E402
import network  # noqa: E402
import notice  # noqa: E402
from running import run, wait_until  # noqa: E402
from stage import Stage, Watcher  # noqa: E402
from stages import HeadsStage  # noqa: E402

HANG_S = 3


@dataclasses.dataclass(frozen=True)
class Scenario:
    title: str
    flags: tuple
    number: int | None  # signal; None: a worker joins, then it is drained
    hosts_replica: bool | None  # of the victim; None: as it comes
    noticed_s: float | None = None  # promised
    stall_s: float | None = None  # promised, beyond the time that loading takes if `loads`
    loads: bool = False
    longest_prompt: int = 200


COMMON = ("--kv-cache-memory", "128MiB")
ALL_TWICE = ("--redundant-experts", "32")
ONE_REPLICA = ("--data-parallel-size", "1")
KILLED, HUNG = faults.NOTICED_KILLED_S, faults.NOTICED_SILENT_S
SCENARIOS = [
    Scenario("Killed; its experts have copies elsewhere", (*ALL_TWICE, *ONE_REPLICA), signal.SIGKILL,
             False, KILLED, 0.25),
    Scenario("Killed with a replica; its experts have copies elsewhere",
             (*ALL_TWICE, "--data-parallel-size", "2"), signal.SIGKILL, True, KILLED, 0.25),
    Scenario("The same with prompts of up to 2,500 tokens", (*ALL_TWICE, "--data-parallel-size", "2"),
             signal.SIGKILL, True, KILLED, 0.25, longest_prompt=2500),
    Scenario("Killed; its experts must be loaded", ONE_REPLICA, signal.SIGKILL, False, KILLED, 0.3, True),
    Scenario("Hung (SIGSTOP); its experts must be loaded", ONE_REPLICA, signal.SIGSTOP, False, HUNG,
             HUNG + 0.3, True),
    Scenario("A worker joins, takes its share of the experts, and is drained", ONE_REPLICA, None, None),
]  # fmt: skip
# Gaps between tokens while experts move, in medians of those at rest.
GAP_MEDIANS = 2


def plan_of(scenario, options):
    return chaos.Plan(seed=options.seed, streams=options.streams, head_flags=COMMON,
                      longest_prompt=scenario.longest_prompt)  # fmt: skip


class Series:
    """One scenario: the same fault many times."""

    def __init__(self, scenario, options, stage):
        self.scenario = scenario
        self.options = options
        self.stage = stage
        self.rng = random.Random(options.seed)
        self.done = []
        self.nodes = {}
        self.expected_workers = options.workers

    def whole(self):
        """Whether all workers serve and nothing is to be moved any more."""
        status = self.watcher.status
        if not status or status["cluster"]["state"] != "ready" or status["experts"]["moves_pending"]:
            return False
        ready = [node for node in status["nodes"] if node["state"] == "ready"]
        self.nodes.update({node["pid"]: node["id"] for node in ready})
        replicas = [r for r in status["replicas"] if r["state"] == "ready"]
        return len(ready) == self.expected_workers and len(replicas) >= self.replicas

    def wait_whole(self):
        since = []

        def look():
            if not self.whole():
                since.clear()
                return False
            since.append(time.monotonic())
            return since[-1] - since[0] > 0.3

        try:
            wait_until(look, "everything is whole again")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.watcher.status}\n{self.stage.logs()}") from None

    def victim(self):
        hosts = {
            shard["device"].split("/")[0]
            for replica in self.watcher.status["replicas"] for shard in replica["shards"]
        }  # fmt: skip
        able = [
            worker for worker in self.stage.living()
            if self.scenario.hosts_replica in (None, self.nodes.get(worker.pid) in hosts)
        ]  # fmt: skip
        return self.rng.choice(able)

    def join_and_drain(self):
        self.wait_whole()
        worker = self.stage.add_worker()
        at = time.monotonic()
        self.expected_workers += 1
        self.wait_whole()
        self.expected_workers -= 1
        worker.leaving = True
        drained = run("drain", self.nodes[worker.pid], env=self.stage.env)
        assert drained.returncode == 0, drained.stderr
        self.done.append({"at": at, "until": time.monotonic()})

    def one(self):
        if self.scenario.number is None:
            return self.join_and_drain()
        self.wait_whole()
        time.sleep(self.rng.uniform(0, 0.3))
        worker = self.victim()
        number = len(self.done)
        before = self.notices.begin(number, [worker.pid])
        at = time.monotonic()
        worker.kill(self.scenario.number)
        self.done.append({"at": at, "before": before})
        if self.scenario.number == signal.SIGSTOP:
            time.sleep(HANG_S)
            worker.kill(signal.SIGCONT)
            wait_until(lambda: not self.whole() or time.monotonic() - at > HANG_S + 2, "it is back")
        else:
            time.sleep(0.4)
            self.stage.add_worker()
        self.done[-1].update(self.notices.end(number))

    def go(self, reference):
        plan = plan_of(self.scenario, self.options)
        stage = self.stage
        stage.start_head()
        for _ in range(self.options.workers):
            stage.add_worker()
        stage.wait_ready()
        self.replicas = int(self.scenario.flags[self.scenario.flags.index("--data-parallel-size") + 1])
        self.watcher = Watcher(stage, 0.1)
        self.notices = notice.Notices(stage.http_port)
        load = chaos.LoadProcess(stage, plan, reference)
        try:
            wait_until(lambda: load.told.get("tokens", 0) > 1000, "tokens flow")
            for number in range(self.options.faults):
                self.one()
                if number % 10 == 9:
                    print(f"{self.scenario.title}: {number + 1} faults, {load.told}", flush=True)
            self.wait_whole()
            load.stop()
            ended = load.wait(90)
        finally:
            self.watcher.close()
            self.notices.close()
            if load.popen.poll() is None:
                load.popen.kill()
        return self.figures(measure.read_records(load.out), load.told, ended)

    def figures(self, records, told, ended):
        arrivals = measure.Arrivals(records)
        rows = self.moves(arrivals) if self.scenario.number is None else self.recoveries(arrivals)
        lost = {name: told[name] for name in ("failed", "changed", "hung")}
        lost["hung"] += 0 if ended else told["running"]
        return {
            "faults": len(self.done),
            "finished": told["finished"],
            "aborted": told["aborted"],
            "lost": lost,
            "replayed": (self.watcher.status or {}).get("requests", {}).get("replayed", 0),
            "rows": rows,
        }

    def recoveries(self, arrivals):
        scenario = self.scenario
        noticed, stalls, worst, first, loads, beyond = [], [], [], [], [], []
        never, never_again = 0, 0
        for fault in self.done:
            # One that was no member could not be lost: wait_whole had seen it, so this is a loss of sight.
            values, unseen = notice.notice_times(fault) if fault["before"] else ([notice.NEVER_S], 1)
            noticed += values
            never += unseen
            never_again += fault["again"] is None
            again = (fault["again"] or fault["at"] + notice.NEVER_S) - fault["at"]
            loads.append(max(0, again - max(values)))
            window = 1 + HANG_S * (scenario.number == signal.SIGSTOP)
            seen = arrivals.stalls(fault["at"], fault["at"] + window)
            stalls += seen
            worst.append(max(seen, default=0))
            first += arrivals.first_waits(fault["at"], fault["at"] + window)
            beyond.append(max(0, worst[-1] - loads[-1]))
        longest = measure.row("stall, the longest of each fault", worst, scenario.stall_s)
        if scenario.loads:
            longest = measure.row("stall, the longest of each fault", worst)
        rows = [
            measure.row("noticed", noticed, scenario.noticed_s, never),
            measure.row("from noticed to serving in full", loads, never=never_again),
            measure.row("stall, each client", stalls),
            longest,
        ]
        if scenario.loads:
            rows.append(measure.row("the same, less what loading took", beyond, scenario.stall_s))
        return [
            *rows,
            measure.row("wait for the first token", first),
            measure.row("gap between tokens, at any time", arrivals.gaps()),
        ]

    def wrong(self, figures):
        scenario = self.scenario
        if scenario.hosts_replica and scenario.number == signal.SIGKILL and not figures["replayed"]:
            yield "replicas were killed under load, and nothing was replayed"

    def moves(self, arrivals):
        moving, rest, end = [], [], -math.inf
        for move in self.done:
            moving += arrivals.gaps(move["at"], move["until"])
            rest += arrivals.gaps(end, move["at"])
            end = move["until"]
        allowed = GAP_MEDIANS * (measure.percentile(rest, 0.5) or 0)
        over = sum(gap > allowed for gap in rest)
        return [
            measure.row("gap between tokens, while experts move", moving, allowed),
            measure.row(f"gap between tokens, at rest: {over} over that, too", rest),
        ]


def wrong(series, figures):
    """What must not be, a line each."""
    for name, count in figures["lost"].items():
        if count:
            yield f"{count} requests {name}"
    yield from series.wrong(figures)


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def of_scenario(scenario, options, reference):
    """(the series, its figures)"""
    if isinstance(scenario, heads.HeadScenario):
        stage, kind = HeadsStage(network.Direct(), (*COMMON, *scenario.flags)), heads.HeadSeries
    else:
        stage, kind = Stage(network.Direct(), (*COMMON, *scenario.flags)), Series
    with stage:
        series = kind(scenario, options, stage)
        return series, series.go(reference)


def markdown(options, done, seconds):
    faults = sum(figures["faults"] for _, figures in done)
    yield "# What a fault costs"
    yield ""
    yield (
        f"{faults} faults on the demo model under {options.streams} streams, {options.workers} workers "
        f"of one thread, head, workers and load on the same {os.cpu_count()} processors ({processor()}); "
        f"seed {options.seed}, {seconds / 60:.0f} minutes, {datetime.date.today()}."
    )
    yield "`python3 tests/chaos/report.py` writes this file. Every answer was compared bit for bit with the"
    yield "one without faults. A loss is noticed when a client sees it that asks for /cluster/status every"
    yield "millisecond. A promise is kept if it was kept each time; what was never noticed counts as late."
    for series, figures in done:
        yield ""
        yield f"## {series.scenario.title}"
        yield ""
        yield "| | promised | count | median | p99 | longest | verdict |"
        yield "|---|---|---|---|---|---|---|"
        for d in figures["rows"]:
            promise = "" if d["promise"] is None else f"< {chaos.ms(d['promise'])}"
            times = " | ".join(chaos.ms(d[key]) for key in ("p50", "p99", "max"))
            yield f"| {d['name']} | {promise} | {d['count']} | {times} | {measure.verdict(d)} |"
        yield ""
        lost = figures["lost"]
        yield (
            f"{figures['finished']} requests finished, {figures['aborted']} were left by their clients, "
            f"{figures['replayed']} sequences were replayed; "
            f"{lost['failed']} failed, {lost['changed']} changed, {lost['hung']} hung."
        )
        yield from (f"**{line}**" for line in wrong(series, figures))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--faults", type=int, default=100, help="of each kind")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="+", help="some scenarios, by their numbers from 0")
    parser.add_argument("--out", type=Path, default=HERE / "REPORT.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    all_scenarios = [*SCENARIOS, *heads.SCENARIOS]
    done = []
    with tempfile.TemporaryDirectory(prefix="troupe-report-") as folder:
        references = {}
        for scenario in [all_scenarios[i] for i in options.only or range(len(all_scenarios))]:
            if not (reference := references.get(scenario.longest_prompt)):
                made_in = Path(tempfile.mkdtemp(dir=folder))
                reference = chaos.answers_without_faults(plan_of(scenario, options), made_in)
                references[scenario.longest_prompt] = reference
            done.append(of_scenario(scenario, options, reference))
    text = "\n".join(markdown(options, done, time.monotonic() - began)) + "\n"
    options.out.write_text(text)
    print(text)
    return 1 if any(line for each in done for line in wrong(*each)) else 0


if __name__ == "__main__":
    sys.exit(main())
