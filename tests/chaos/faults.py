"""What happens to the workers: a seeded schedule, and the hand that carries it out.

The schedule is drawn beforehand from its seed alone. Whom a fault hits is drawn too, as a number that
is turned into one of the workers of that moment.
"""

import dataclasses
import random
import signal
import subprocess
import threading
import time

import running

# How often each comes, relative to the others.
WEIGHTS = {
    "kill": 8,
    "kill_two": 3,
    "kill_all": 2,
    "kill_twin": 8,
    "hang": 4,
    "pause": 3,
    "cut_off": 3,
    "one_way_out": 1,
    "one_way_in": 1,
    "reset": 2,
    "cut_pair": 1,
    "reset_pair": 2,
    "slow": 2,
    "lossy": 2,
    "bursty": 2,
    "join": 4,
    "drain": 3,
    "rebalance": 3,
    "kill_loading": 2,
    "kill_recovering": 3,
    "kill_draining": 2,
    "kill_rebalancing": 2,
    "kill_head": 8,
    "hang_head": 3,
}
NEEDS_NETWORK = {"cut_off", "one_way_out", "one_way_in", "reset", "cut_pair", "reset_pair", "slow", "lossy",
                 "bursty"}  # fmt: skip
# There are workers on twins of GPUs.
NEEDS_TWINS = {"kill_twin"}
# The head has a standby, or is to die by name: then clients have keys.
NEEDS_HEADS = {"kill_head", "hang_head"}
NEEDS_TWO = {"kill_two", "cut_pair", "reset_pair", "drain", "kill_draining", "kill_recovering"}
# What kills or silences; drains, joins and rebalances are work, not faults.
LOSES = {"kill", "kill_two", "kill_all", "kill_twin", "hang", "kill_loading", "kill_recovering",
         "kill_draining", "kill_rebalancing", "cut_off", "one_way_out", "one_way_in"}  # fmt: skip
# Within which each promises to be noticed.
NOTICED_KILLED_S = 0.05
NOTICED_SILENT_S = 1.5
DRAIN_PATIENCE_S = 60


def is_kill(fault):
    return "kill" in fault["kind"] and fault["kind"] not in NEEDS_HEADS


@dataclasses.dataclass(frozen=True)
class Planned:
    kind: str
    gap_s: float  # after the one before
    who: float  # in [0, 1): which of the workers
    also: float  # which other one
    lasts_s: float
    soon_s: float  # until the second part of a fault with two parts
    refill_s: float  # until new workers take the places of dead ones
    wanted: int  # workers from then on


def schedule(seed, network, kinds=None, workers=4, pace_s=(0.6, 3), twins=0, heads_die=False):
    """An endless sequence of faults that this network and these workers can do."""
    rng = random.Random(seed)
    possible = {
        kind: weight for kind, weight in WEIGHTS.items()
        if (kinds is None or kind in kinds) and (kind not in NEEDS_NETWORK or kind in network.can)
        and (kind not in NEEDS_TWINS or twins) and (kind not in NEEDS_HEADS or heads_die)
    }  # fmt: skip
    # Each kind once before any comes twice, so that a short run has seen them all.
    bag = list(possible)
    rng.shuffle(bag)
    while True:
        kind = bag.pop() if bag else rng.choices(list(possible), possible.values())[0]
        lasts = rng.uniform(0.2, 0.8) if kind == "pause" else rng.uniform(1.8, 4)
        yield Planned(
            kind, rng.uniform(*pace_s), rng.random(), rng.random(), lasts, rng.uniform(0.01, 0.4),
            rng.uniform(0, 1.5), rng.randint(2 if kind in NEEDS_TWO else 1, workers),
        )  # fmt: skip


class Hand:
    """Carries out faults on a stage and notes what it did."""

    def __init__(self, stage, notices, tell=lambda fault: None):
        self.stage = stage
        self.notices = notices
        self.tell = tell
        self.faults = []
        self.heals = []  # (when, what to do)
        self.commands = []
        self.wanted = len(stage.living())
        self.refill_at = 0

    # --- time passes -------------------------------------------------------------------------

    def until(self, end):
        """Heals, refills and tidies while time passes."""
        while (now := time.monotonic()) < end:
            self.turn(now)
            time.sleep(max(0, min(0.02, end - now)))

    def turn(self, now):
        for entry in [entry for entry in self.heals if entry[0] <= now]:
            self.heals.remove(entry)
            entry[1]()
        self.finish_commands()
        if now >= self.refill_at:
            missing = self.wanted - len(self.stage.living())
            if missing > 0:
                self.note("start", [self.stage.add_worker() for _ in range(missing)])

    def heal_all(self):
        for _, heal in self.heals:
            heal()
        self.heals = []

    def settle(self):
        """Everything healed, and the workers that are wanted there."""
        self.heal_all()
        self.refill_at = 0
        self.turn(time.monotonic())

    def note(self, kind, workers, **more):
        fault = {"kind": kind, "at": time.monotonic(), "pids": [w.pid for w in workers], **more}
        self.faults.append(fault)
        self.tell(fault)
        return fault

    def hurt(self, kind, workers, how, **more):
        """Does something to workers that are watched from outside meanwhile."""
        number = len(self.faults)
        before = self.notices.begin(number, [w.pid for w in workers])
        at = time.monotonic()
        heal = how()
        self.note(kind, workers, watch=number, before=before, **more)["at"] = at
        return heal

    def results(self):
        """The faults, with what was seen of them from outside."""
        for fault in self.faults:
            if "watch" in fault:
                fault.update(self.notices.end(fault["watch"]))
        return self.faults

    # --- commands ----------------------------------------------------------------------------

    def command(self, *words, worker=None):
        log = self.stage.folder / f"command-{len(self.commands)}-{words[0]}.log"
        process = running.Process(words, self.stage.env, log)
        command = {"words": words, "process": process, "worker": worker, "time": time.time(),
                   "deadline": time.monotonic() + DRAIN_PATIENCE_S, "code": None}  # fmt: skip
        self.commands.append(command)
        return command

    def finish_commands(self):
        for command in self.commands:
            popen = command["process"].popen
            if command["code"] is not None:
                continue
            code = popen.poll()
            if code is None and time.monotonic() > command["deadline"]:
                popen.kill()
                popen.wait()
                code = "no end"
            if code is None:
                continue
            command["code"] = code
            command["said"] = command["process"].log().strip()[-300:]
            command["took_s"] = time.time() - command["time"]
            worker = command["worker"]
            if worker and worker.alive():
                if code == 0:
                    worker.kill(signal.SIGTERM)  # it may be switched off now, and is
                else:
                    worker.leaving = False

    def drain(self, worker):
        node = self.stage.node_of(worker.pid)
        if node is None:
            return None
        worker.leaving = True
        return self.command("drain", node, worker=worker)

    # --- faults ------------------------------------------------------------------------------

    def do(self, planned):
        workers = self.stage.living()
        if planned.kind in NEEDS_TWO and len(workers) < 2:
            planned = dataclasses.replace(planned, kind="join")
        if not workers:
            planned = dataclasses.replace(planned, kind="join")
        self.refill_at = time.monotonic() + planned.refill_s
        self.wanted = planned.wanted
        index = int(planned.who * len(workers))
        victim = workers[index] if workers else None
        others = [w for w in workers if w is not victim]
        other = others[int(planned.also * len(others))] if others else None
        getattr(self, "do_" + planned.kind)(planned, victim, other)

    def kill(self, kind, *workers):
        self.hurt(kind, workers, lambda: [worker.kill() for worker in workers])

    def later(self, seconds):
        self.until(time.monotonic() + seconds)

    def do_kill(self, planned, victim, _):
        self.kill("kill", victim)

    def do_kill_two(self, planned, victim, other):
        self.kill("kill_two", victim, other)

    def do_kill_all(self, planned, *_):
        self.kill("kill_all", *self.stage.living())

    def do_kill_twin(self, planned, victim, _):
        twins = [worker for worker in self.stage.living() if worker.pid in self.stage.twin_pids]
        self.kill("kill_twin", twins[int(planned.also * len(twins))] if twins else victim)

    def for_a_while(self, planned, victims, how, heal=None):
        """What lasts; `how` gives the way back, where it is not given."""
        back = self.hurt(planned.kind, victims, how, lasts_s=planned.lasts_s)
        self.heals.append((time.monotonic() + planned.lasts_s, heal or back))

    def stop(self, planned, victim):
        self.for_a_while(planned, [victim], lambda: victim.kill(signal.SIGSTOP),
                         lambda: victim.kill(signal.SIGCONT))  # fmt: skip

    def do_hang(self, planned, victim, _):
        self.stop(planned, victim)

    def do_pause(self, planned, victim, _):
        self.stop(planned, victim)

    def link_of(self, planned, victim, _):
        """A link is cut, slow or loses what it carries for a while."""
        self.for_a_while(planned, [victim], getattr(victim.link, planned.kind))

    do_cut_off = do_one_way_out = do_one_way_in = do_slow = do_lossy = do_bursty = link_of

    def do_reset(self, planned, victim, _):
        victim.link.reset()
        self.note("reset", [victim])

    def do_cut_pair(self, planned, victim, other):
        self.for_a_while(planned, [victim, other], lambda: victim.link.cut_pair(other.link))

    def do_reset_pair(self, planned, victim, other):
        victim.link.reset_pair(other.link)
        self.note("reset_pair", [victim, other])

    def do_kill_head(self, planned, *_):
        """It is started again with its old flags after a while."""
        head = self.stage.ruling()
        if head.process.popen.poll() is not None:
            return  # the only one is away already
        self.note("kill_head", [head.process], lasts_s=planned.lasts_s)
        head.kill()
        self.heals.append((time.monotonic() + planned.lasts_s, head.start))

    def do_hang_head(self, planned, *_):
        head = self.stage.ruling()
        if head.process.popen.poll() is not None:
            return
        self.note("hang_head", [head.process], lasts_s=planned.lasts_s)
        head.kill(signal.SIGSTOP)
        self.heals.append((time.monotonic() + planned.lasts_s, lambda: head.kill(signal.SIGCONT)))

    def do_join(self, planned, *_):
        self.note("join", [self.stage.add_worker()])
        self.wanted = max(self.wanted, len(self.stage.living()))

    def do_drain(self, planned, victim, _):
        self.note("drain", [victim])
        self.drain(victim)
        self.wanted = max(1, min(self.wanted, len(self.stage.living())))

    def do_rebalance(self, *_):
        self.note("rebalance", [])
        self.command("rebalance")

    def do_kill_loading(self, planned, victim, _):
        newcomer = self.stage.add_worker()
        self.note("join", [newcomer])
        self.later(planned.soon_s)
        self.kill("kill_loading", victim if planned.also < 0.5 else newcomer)

    def do_kill_recovering(self, planned, victim, other):
        self.kill("kill", victim)
        self.later(planned.soon_s)
        self.kill("kill_recovering", other)

    def do_kill_draining(self, planned, victim, other):
        self.note("drain", [victim])
        self.drain(victim)
        self.later(planned.soon_s)
        self.kill("kill_draining", victim if planned.also < 0.5 else other)

    def do_kill_rebalancing(self, planned, victim, _):
        self.do_rebalance()
        self.later(planned.soon_s)
        self.kill("kill_rebalancing", victim)

    def close(self):
        for command in self.commands:
            command["deadline"] = 0
        self.finish_commands()


class Background:
    """Runs a hand's schedule in a thread, for tests that look on meanwhile."""

    def __init__(self, hand, plan, seconds):
        self.error = None
        self.thread = threading.Thread(target=self._run, args=(hand, plan, seconds))
        self.thread.start()

    def _run(self, hand, plan, seconds):
        try:
            end = time.monotonic() + seconds
            for planned in plan:
                hand.until(min(end, time.monotonic() + planned.gap_s))
                if time.monotonic() >= end:
                    return
                hand.do(planned)
        except Exception as error:  # shown where it is waited for
            self.error = error

    def running(self):
        return self.thread.is_alive()

    def wait(self):
        self.thread.join()
        if self.error:
            raise self.error
