"""The clusters of a run: with workers on twins of GPUs, and with heads that die."""

import json
import signal

import running
from pair import Pair, state_of
from stage import Stage

# A GPU's kernels on this processor, with what a small model needs.
TWIN = ("--device", "cuda-twin", "--device-memory", "1GiB")


class MixedStage(Stage):
    """Of its workers some compute on twins of GPUs: who is missing of those is started first."""

    def __init__(self, *args, twins=0, **more):
        super().__init__(*args, **more)
        self.twins = twins
        self.twin_pids = set()

    def add_worker(self, *words):
        there = sum(worker.alive() and worker.pid in self.twin_pids for worker in self.workers)
        if there >= self.twins:
            return super().add_worker(*words)
        worker = super().add_worker(*words, *TWIN, program=running.TESTING)
        self.twin_pids.add(worker.pid)
        return worker


class Head:
    """A machine that may have the head."""

    def __init__(self, base_url, process_of, start):
        self.base_url = base_url
        self.process_of = process_of
        self.start = start

    @property
    def process(self):
        return self.process_of()

    def kill(self, number=signal.SIGKILL):
        self.process.kill(number)
        if number == signal.SIGKILL:
            self.process.popen.wait()


class Blind:
    """Looks on at nothing: whom it would ask may be the one that dies."""

    def begin(self, number, pids):
        return {}

    def end(self, number):
        return {}

    def close(self):
        pass


class HeadsStage(MixedStage):
    """Its head dies and comes back, or has a standby; what is asked of the cluster is asked of the one that
    rules."""

    pair = None
    machines = ()

    def expect_deaths(self, heads):
        self.machines = [Head(self.base_url, lambda: self.head_process, self.start_head)]
        if heads > 1:
            self.pair = Pair(self)
            self.pair.wait_follows()
            self.machines.append(Head(self.pair.base_url, lambda: self.pair.process, self.pair.start))

    def ruling(self):
        alive = [head for head in self.machines if head.process.popen.poll() is None]
        states = {head: state_of(head.base_url) for head in alive}
        rules = [head for head, state in states.items() if state not in (None, "standby")]
        return (rules or self.machines)[0]

    def ports(self):
        return [self.http_port] if self.pair is None else [self.http_port, self.pair.http_port]

    def status_or_none(self):
        if not self.machines:
            return super().status_or_none()
        for head in self.machines:
            try:
                status = json.loads(running.get(head.base_url, "/cluster/status", 5))
            except OSError:
                continue
            if status["cluster"]["state"] != "standby":
                return status
        return None
