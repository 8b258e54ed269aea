"""What the death of a head costs, and of one that has a standby: the same fault many times, for report.py."""

import dataclasses
import random
import signal
import time
import urllib.error
import urllib.request

import chaos
import measure
from pair import standby_of
from running import PATIENCE_S, wait_until
from stage import Watcher

HANG_S = 3
LOOKS_EVERY_S = 0.005
# A request that was under way at a fault has its next token by then, or counts with that time.
NEVER_S = 30


@dataclasses.dataclass(frozen=True)
class HeadScenario:
    title: str
    heads: int
    number: int  # signal
    again_s: float | None = None  # promised: until newcomers are taken again
    flags: tuple = ("--data-parallel-size", "3")
    longest_prompt: int = 200


SCENARIOS = [
    HeadScenario("The head is killed, and started again at once", 1, signal.SIGKILL, 1),
    HeadScenario(f"The head stands still for {HANG_S} s (SIGSTOP)", 1, signal.SIGSTOP),
    HeadScenario("The head is killed; its standby takes over", 2, signal.SIGKILL),
    HeadScenario("The head stands still (SIGSTOP); its standby takes over", 2, signal.SIGSTOP),
]


def takes_newcomers(head):
    try:
        with urllib.request.urlopen(head.base_url + "/health", timeout=1):
            return True
    except (OSError, urllib.error.HTTPError):
        return False


def wait_first(condition, seconds=PATIENCE_S):
    """When it came about."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return None
        time.sleep(LOOKS_EVERY_S)
    return time.monotonic()


class HeadSeries:
    """One scenario. Its load has keys, and asks again every 50 ms where nobody answers."""

    def __init__(self, scenario, options, stage):
        self.scenario, self.options, self.stage = scenario, options, stage
        self.rng = random.Random(options.seed)
        self.done = []
        self.replayed = 0

    def whole(self):
        status = self.watcher.status
        ready = [node for node in (status or {"nodes": []})["nodes"] if node["state"] == "ready"]
        if len(ready) < self.options.workers or status["cluster"]["state"] != "ready":
            return False
        return self.scenario.heads == 1 or standby_of(self.stage.ruling().base_url) == "ready"

    def one(self):
        wait_until(self.whole, "everything is whole again")
        time.sleep(self.rng.uniform(0.3, 0.8))
        head = self.stage.ruling()
        others = [other for other in self.stage.machines if other is not head]
        at = time.monotonic()
        head.kill(self.scenario.number)
        if not others:
            if self.scenario.number == signal.SIGKILL:
                head.start()
            else:
                time.sleep(HANG_S)
                head.kill(signal.SIGCONT)
        again = wait_first(lambda: any(takes_newcomers(other) for other in others or [head]))
        self.done.append({"at": at, "again": again})
        if others:
            head.start() if self.scenario.number == signal.SIGKILL else head.kill(signal.SIGCONT)
        wait_until(lambda: self.stage.status_or_none(), "a head answers")
        time.sleep(0.5)
        # A new life counts from its start.
        self.replayed += self.stage.status_or_none()["requests"]["replayed"]

    def go(self, reference):
        stage, options = self.stage, self.options
        plan = chaos.Plan(seed=options.seed, streams=options.streams, kinds=("kill_head",),
                          heads=self.scenario.heads, longest_prompt=self.scenario.longest_prompt)  # fmt: skip
        stage.start_head()
        for _ in range(options.workers):
            stage.add_worker()
        stage.wait_ready()
        stage.expect_deaths(self.scenario.heads)
        self.watcher = Watcher(stage, 0.1)
        load = chaos.LoadProcess(stage, plan, reference)
        try:
            wait_until(lambda: load.told.get("tokens", 0) > 1000, "tokens flow")
            for number in range(options.faults):
                self.one()
                if number % 10 == 9:
                    print(f"{self.scenario.title}: {number + 1} faults, {load.told}", flush=True)
            wait_until(self.whole, "everything is whole again")
            load.stop()
            ended = load.wait(90)
        finally:
            self.watcher.close()
            if load.popen.poll() is None:
                load.popen.kill()
        return self.figures(measure.read_records(load.out), load.told, ended)

    def figures(self, records, told, ended):
        again = [(fault["again"] or fault["at"] + NEVER_S) - fault["at"] for fault in self.done]
        never = sum(fault["again"] is None for fault in self.done)
        waits, worst, resumed = [], [], 0
        for fault in self.done:
            seen = measure.next_tokens(records, fault["at"])
            waits += seen
            worst.append(max(seen, default=0))
            resumed += len(seen)
        lost = {name: told[name] for name in ("failed", "changed", "hung")}
        lost["hung"] += 0 if ended else told["running"]
        return {
            "faults": len(self.done),
            "finished": told["finished"],
            "aborted": told["aborted"],
            "lost": lost,
            "replayed": self.replayed,
            "resumed": resumed,
            "rows": [
                measure.row("until newcomers are taken again", again, self.scenario.again_s, never),
                measure.row("until the next token, each stream that ran", waits),
                measure.row("the same, the longest of each fault", worst),
            ],
        }

    def wrong(self, figures):
        if not figures["resumed"]:
            yield "heads died under load, and no stream that ran then went on"
