"""Measures recovery over many faults, one at a time, and writes REPORT.md beside this file.

    python3 tests/chaos/report.py [--faults 100] [--streams 8]

Each kind of fault is repeated on a cluster under load, with everything whole again in between. Exit code 0
only if nothing was lost; the times are reported, not judged.
"""

import argparse
import dataclasses
import datetime
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
import measure  # noqa: E402
import network  # noqa: E402
from running import run, wait_until  # noqa: E402
from stage import Stage, Watcher  # noqa: E402

HANG_S = 3


@dataclasses.dataclass(frozen=True)
class Scenario:
    title: str
    flags: tuple
    number: int | None  # signal; None: a worker joins, then it is drained
    hosts_replica: bool | None  # of the victim; None: as it comes
    promise: str


ALL_TWICE = ("--redundant-experts", "32")
ONE_REPLICA = ("--data-parallel-size", "1")
SCENARIOS = [
    Scenario("Killed; its experts have copies elsewhere", (*ALL_TWICE, *ONE_REPLICA), signal.SIGKILL,
             False, "noticed < 50 ms, stall < 250 ms"),
    Scenario("Killed with a replica; its experts have copies elsewhere",
             (*ALL_TWICE, "--data-parallel-size", "2"), signal.SIGKILL, True,
             "noticed < 50 ms, stall < 250 ms"),
    Scenario("Killed; its experts must be loaded", ONE_REPLICA, signal.SIGKILL, False,
             "noticed < 50 ms, stall < loading + 300 ms"),
    Scenario("Hung (SIGSTOP); its experts must be loaded", ONE_REPLICA, signal.SIGSTOP, False,
             "noticed < 1.5 s, stall < 1.5 s + loading + 300 ms"),
    Scenario("A worker joins, takes its share of the experts, and is drained", ONE_REPLICA, None, None,
             "no gap between tokens over twice the median because of the moves"),
]  # fmt: skip


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
            wait_until(look, 30, "everything is whole again")
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
        at = time.time()
        self.expected_workers += 1
        self.wait_whole()
        self.expected_workers -= 1
        worker.leaving = True
        drained = run("drain", self.nodes[worker.pid], env=self.stage.env)
        assert drained.returncode == 0, drained.stderr
        self.done.append({"time": at, "pids": [], "until": time.time()})

    def one(self):
        if self.scenario.number is None:
            return self.join_and_drain()
        self.wait_whole()
        time.sleep(self.rng.uniform(0, 0.3))
        worker = self.victim()
        at = time.time()
        worker.kill(self.scenario.number)
        self.done.append({"time": at, "pids": [worker.pid]})
        if self.scenario.number == signal.SIGSTOP:
            time.sleep(HANG_S)
            worker.kill(signal.SIGCONT)
            wait_until(lambda: not self.whole() or time.time() - at > HANG_S + 2, 5, "it is back")
        else:
            time.sleep(0.4)
            self.stage.add_worker()

    def go(self, reference):
        plan = chaos.Plan(seed=self.options.seed, streams=self.options.streams)
        stage = self.stage
        stage.start_head()
        for _ in range(self.options.workers):
            stage.add_worker()
        stage.wait_ready()
        self.replicas = int(self.scenario.flags[self.scenario.flags.index("--data-parallel-size") + 1])
        self.watcher = Watcher(stage, 0.1)
        clock = time.time() - time.monotonic()
        load = chaos.LoadProcess(stage, plan, reference)
        try:
            wait_until(lambda: load.told.get("tokens", 0) > 1000, 30, "tokens flow")
            for number in range(self.options.faults):
                self.one()
                if number % 10 == 9:
                    print(f"{self.scenario.title}: {number + 1} faults, {load.told}", flush=True)
            self.wait_whole()
            load.stop()
            ended = load.wait(90)
        finally:
            self.watcher.close()
            if load.popen.poll() is None:
                load.popen.kill()
        return self.figures(measure.read_records(load.out), load.told, ended, clock)

    def figures(self, records, told, ended, clock):
        events = self.watcher.all_events()
        arrivals = measure.Arrivals(records)
        noticed, stalls, worst, loads, moving = [], [], [], [], []
        for fault in self.done:
            if "until" in fault:
                moving += arrivals.gaps(fault["time"] - clock, fault["until"] - clock)
                continue
            noticed += measure.noticed_in(fault, self.nodes, events)
            again = measure.serving_again_in(fault, events, fault["time"] + HANG_S + 2)
            if noticed and again is not None:
                loads.append(again - noticed[-1])
            begin = fault["time"] - clock
            seen = arrivals.stalls(begin, begin + 1 + HANG_S * (self.scenario.number == signal.SIGSTOP))
            stalls += seen
            worst.append(max(seen, default=0))
        lost = {name: told[name] for name in ("failed", "changed", "hung")}
        lost["hung"] += 0 if ended else told["running"]
        return {
            "faults": len(self.done),
            "finished": told["finished"],
            "lost": lost,
            "replayed": (self.watcher.status or {}).get("requests", {}).get("replayed"),
            "rows": {
                "noticed": measure.distribution(noticed),
                "stall, each client": measure.distribution(stalls),
                "stall, the longest of each fault": measure.distribution(worst),
                "from noticed to recovered (planned, loaded, switched)": measure.distribution(loads),
                "gap between tokens, while experts move": measure.distribution(moving),
                "gap between tokens, at any time": measure.distribution(arrivals.gaps()),
            },
        }


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def markdown(options, series, seconds):
    faults = sum(figures["faults"] for _, figures in series)
    yield "# What a fault costs"
    yield ""
    yield (
        f"{faults} faults on the demo model under {options.streams} streams, {options.workers} workers "
        f"of one thread, head, workers and load on the same {os.cpu_count()} processors ({processor()}); "
        f"seed {options.seed}, {seconds / 60:.0f} minutes, {datetime.date.today()}."
    )
    yield "`python3 tests/chaos/report.py` writes this file. Every answer was compared bit for bit with the"
    yield "one without faults."
    for scenario, figures in series:
        yield ""
        yield f"## {scenario.title}"
        yield ""
        yield f"Promised: {scenario.promise}."
        yield ""
        yield "| | count | median | p99 | longest |"
        yield "|---|---|---|---|---|"
        for name, d in figures["rows"].items():
            if d["count"]:
                yield f"| {name} | {d['count']} | " + " | ".join(
                    chaos.ms(d[key]) for key in ("p50", "p99", "max")
                ) + " |"
        yield ""
        lost = figures["lost"]
        yield (
            f"{figures['finished']} requests finished, {figures['replayed']} replays; "
            f"{lost['failed']} failed, {lost['changed']} changed, {lost['hung']} hung."
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--faults", type=int, default=100, help="of each kind")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one scenario, by its number from 0")
    parser.add_argument("--out", type=Path, default=HERE / "REPORT.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    common = ("--kv-cache-memory", "128MiB")
    began = time.monotonic()
    series = []
    with tempfile.TemporaryDirectory(prefix="troupe-report-") as folder:
        plan = chaos.Plan(seed=options.seed, head_flags=common)
        reference = chaos.answers_without_faults(plan, Path(folder))
        for scenario in SCENARIOS if options.only is None else [SCENARIOS[options.only]]:
            with Stage(network.Direct(), (*common, *scenario.flags)) as stage:
                series.append((scenario, Series(scenario, options, stage).go(reference)))
    text = "\n".join(markdown(options, series, time.monotonic() - began)) + "\n"
    options.out.write_text(text)
    print(text)
    return 1 if any(sum(figures["lost"].values()) for _, figures in series) else 0


if __name__ == "__main__":
    sys.exit(main())
