"""A cluster under constant load while its workers are killed, hung, cut off, added and drained.

Every answer is compared, bit for bit, with the one of a run without faults. Ends with exit code 0 only
if no request failed, none changed and none hung. How long things took is told, not judged.
"""

import argparse
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import faults  # noqa: E402
import measure  # noqa: E402
import network  # noqa: E402
import notice  # noqa: E402
import running  # noqa: E402
from stage import Stage, Watcher  # noqa: E402
from stages import Blind, HeadsStage, MixedStage  # noqa: E402

# What runs when the load is stopped must be at its end by then.
LAST_ANSWERS_S = 90
# Requests whose clients went away are cancelled by then.
CANCELLED_S = 5
DIFFERENT_REQUESTS = 96


@dataclasses.dataclass
class Plan:
    seconds: float = 60
    seed: int = 1
    streams: int = 32
    workers: int = 4
    twins: int = 0  # of the workers, as many compute on a GPU's twin, if so many are there
    kinds: tuple | None = None
    head_flags: tuple = ()
    log_level: str = "info"
    keep: Path | None = None  # where logs go when something was lost
    longest_prompt: int = 2500
    longest_answer: int = 500
    heads: int = 1  # 2: the head has a standby

    @property
    def heads_die(self):
        return self.heads > 1 or bool(faults.NEEDS_HEADS & set(self.kinds or ()))


class LoadProcess:
    """load.py as a process, and the newest line that it told."""

    def __init__(self, stage, plan, reference, *words):
        self.out = stage.folder / f"records-{len(words)}.jsonl"
        self.errors = stage.folder / "load.log"
        ports = stage.ports() if plan.heads > 1 and "--once" not in words else [stage.http_port]
        keyed = plan.heads_die and "--once" not in words
        words = [*(word for port in ports for word in ("--port", port)), "--seed", plan.seed,
                 *(["--keyed"] if keyed else []),
                 "--requests", DIFFERENT_REQUESTS,
                 "--longest-prompt", plan.longest_prompt, "--longest-answer", plan.longest_answer,
                 "--streams", plan.streams,
                 "--reference", reference, "--out", self.out, *words]  # fmt: skip
        with open(self.errors, "ab") as errors:
            self.popen = subprocess.Popen(
                [sys.executable, str(HERE / "load.py"), *map(str, words)], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self.told = {}
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.popen.stdout:
            self.told = json.loads(line)

    def stop(self):
        try:
            self.popen.stdin.write("stop\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            pass

    def wait(self, seconds):
        """Whether it came to its end by itself."""
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            return False
        self.thread.join()
        assert code == 0, f"the load generator failed:\n{self.errors.read_text()}"
        return True


def answers_without_faults(plan, folder):
    """The answers without faults, from one worker alone; returns the file."""
    reference = folder / "reference.json"
    with Stage(network.Direct(), plan.head_flags) as stage:
        stage.start_head()
        stage.add_worker()
        stage.wait_ready()
        load = LoadProcess(stage, plan, reference, "--once")
        assert load.wait(300), "the run without faults does not end"
        assert load.told["finished"] == DIFFERENT_REQUESTS, (
            f"{load.told}\n{load.out.read_text()[:2000]}\n{stage.logs()}"
        )
    return reference


# --- The run ----------------------------------------------------------------------------------


class View:
    """What a person sees: a line a second, and one for each fault."""

    HEADS = ("time", "workers", "streams", "tokens/s", "finished", "failed", "changed", "hung", "quiet")

    def __init__(self, out=sys.stdout):
        self.out = out
        self.started = time.monotonic()
        self.lines = 0
        self.tokens = 0
        self.told_at = self.started

    def say(self, text):
        print(text, file=self.out, flush=True)

    def now(self):
        return f"{time.monotonic() - self.started:7.1f} s"

    def fault(self, fault, nodes, twins=()):
        names = [(nodes.get(pid) or f"process {pid}") + (" (a twin)" if pid in twins else "")
                 for pid in fault["pids"]]  # fmt: skip
        lasts = f" for {fault['lasts_s']:.1f} s" if "lasts_s" in fault else ""
        self.say(f"{self.now()}  -- {fault['kind'].replace('_', ' ')} {' and '.join(names)}{lasts}")

    def second(self, told, workers, state):
        if self.lines % 20 == 0:
            self.say("  ".join(f"{head:>9}" for head in self.HEADS) + "  cluster")
        self.lines += 1
        now = time.monotonic()
        rate = (told.get("tokens", 0) - self.tokens) / max(1e-3, now - self.told_at)
        self.tokens, self.told_at = told.get("tokens", 0), now
        values = [self.now(), workers, told.get("running", 0), f"{rate:.0f}", *(
            told.get(name, 0) for name in ("finished", "failed", "changed", "hung")
        ), f"{told.get('quiet_s', 0) * 1000:.0f} ms"]  # fmt: skip
        self.say("  ".join(f"{value!s:>9}" for value in values) + f"  {state}")


class Run:
    def __init__(self, plan, stage, view):
        self.plan = plan
        self.stage = stage
        self.view = view
        self.nodes = {}

    def state(self):
        status = self.watcher.status or {}
        for node in status.get("nodes", []):
            self.nodes[node["pid"]] = node["id"]
        return status.get("cluster", {}).get("state", "-")

    def at_rest(self, hand):
        return self.state() == "ready" and all(c["code"] is not None for c in hand.commands)

    def look_on(self, hand, condition):
        while condition():
            hand.turn(time.monotonic())
            self.tick()
            time.sleep(0.05)

    def tick(self):
        if time.monotonic() >= self.next_line:
            self.next_line = time.monotonic() + 1
            self.view.second(self.load.told, len(self.stage.living()), self.state())

    def go(self, reference):
        plan, stage = self.plan, self.stage
        rng = random.Random(plan.seed)
        stage.start_head()
        first = rng.randint(1, plan.workers)
        for _ in range(max(first, min(plan.workers, plan.twins + 1)) if plan.twins else first):
            stage.add_worker()
        stage.wait_ready()
        if plan.heads_die:
            stage.expect_deaths(plan.heads)
        self.watcher = Watcher(stage)
        self.load = LoadProcess(stage, plan, reference)
        self.next_line = time.monotonic()
        notices = notice.Notices(stage.http_port) if not plan.heads_die else Blind()
        hand = faults.Hand(stage, notices, lambda fault: self.view.fault(fault, self.nodes, stage.twin_pids))
        schedule = faults.schedule(plan.seed, stage.network, plan.kinds, plan.workers, twins=plan.twins,
                                   heads_die=plan.heads_die)  # fmt: skip
        background = faults.Background(hand, schedule, plan.seconds)
        try:
            while background.running():
                self.tick()
                time.sleep(0.05)
            background.wait()
            hand.settle()
            self.view.say(f"{self.view.now()}  -- no more faults; what runs comes to its end")
            self.load.stop()
            end = time.monotonic() + LAST_ANSWERS_S
            self.look_on(hand, lambda: self.load.popen.poll() is None and time.monotonic() < end)
            ended = self.load.wait(1)
            self.look_on(hand, lambda: not self.at_rest(hand) and time.monotonic() < end)
            end = time.monotonic() + CANCELLED_S
            self.look_on(hand, lambda: self.left_over() and time.monotonic() < end)
            seen = hand.results()
        finally:
            notices.close()
            self.watcher.close()
            hand.close()
            if self.load.popen.poll() is None:
                self.load.popen.kill()
        stage.living()  # notes the last crashes
        for process in (stage.head_process, *([stage.pair.process] if plan.heads > 1 else ())):
            if process.popen.poll() is not None:
                stage.crashes.append("the head ended by itself:\n" + process.log()[-2000:])
        return self.result(hand, seen, ended)

    def left_over(self):
        """Requests that nobody waits for any more."""
        requests = (self.watcher.status or {}).get("requests", {})
        return requests.get("running", 0) + requests.get("waiting", 0)

    def result(self, hand, seen, ended):
        records = measure.read_records(self.load.out)
        told = self.load.told
        counts = {name: told[name] for name in
                  ("finished", "aborted", "failed", "changed", "hung", "refused")}
        if not ended:
            counts["hung"] += max(1, told["running"])
        done = [fault for fault in seen if fault["kind"] not in ("start", "join")]
        killed = [pid for fault in seen if faults.is_kill(fault) for pid in fault["pids"]]
        twins = sum(pid in self.stage.twin_pids for pid in killed)
        return {
            "plan": {"seconds": self.plan.seconds, "seed": self.plan.seed, "streams": self.plan.streams,
                     "workers": self.plan.workers, "twins": self.plan.twins,
                     "heads": self.plan.heads, "heads_die": self.plan.heads_die,
                     "network": self.stage.network.name,
                     "left_out": left_out(self.stage.network, self.plan.kinds)},
            "counts": counts,
            "tokens": told["tokens"],
            "faults": seen,
            "killed": {"twins": twins, "processors": len(killed) - twins},
            "events": self.watcher.all_events(),
            "state": self.state(),
            "left_over": self.left_over(),
            "crashes": self.stage.crashes,
            "requests": (self.watcher.status or {}).get("requests", {}),
            "commands": [{k: c.get(k) for k in ("words", "code", "said", "took_s")} for c in hand.commands],
            "bad": [r for r in records if r["verdict"] not in ("finished", "aborted")][:20],
            "figures": figures(done, records),
        }  # fmt: skip


def figures(done, records):
    """Rows (see measure.row). Faults may overlap here, so that a stall has no promise of its own."""
    arrivals = measure.Arrivals(records)
    noticed, recovered = {True: ([], []), False: ([], [])}, []
    stalls, worst, first, never_again = [], [], [], 0
    for fault, after in zip(done, [*done[1:], None]):
        begin = fault["at"]
        end = min(after["at"] if after else begin + 10, begin + 10)
        if fault["kind"] in faults.LOSES and fault["before"] != {}:
            values, never = notice.notice_times(fault)
            for into, more in zip(noticed[faults.is_kill(fault)], (values, [never])):
                into += more
            never_again += fault["again"] is None
            recovered.append((fault["again"] or begin + notice.NEVER_S) - begin)
        seen = arrivals.stalls(begin, end)
        stalls += seen
        worst.append(max(seen, default=0))
        first += arrivals.first_waits(begin, end)
    (killed, killed_never), (silent, silent_never) = noticed[True], noticed[False]
    return [
        measure.row("noticed, killed", killed, faults.NOTICED_KILLED_S, sum(killed_never)),
        measure.row("noticed, hung or cut off", silent, faults.NOTICED_SILENT_S, sum(silent_never)),
        measure.row("serves again in full", recovered, never=never_again),
        measure.row("stall, each client", stalls),
        measure.row("stall, the longest of each fault", worst),
        measure.row("wait for the first token", first),
        measure.row("gap between tokens, at any time", arrivals.gaps()),
    ]


def left_out(network, kinds):
    """Faults that are not tried, and why."""
    return {
        kind: network.cannot.get(kind, f"not with {network.name}")
        for kind in faults.NEEDS_NETWORK - network.can if kinds is None or kind in kinds
    }  # fmt: skip


def not_replayed(result):
    """Whether a killed worker took requests with it, as the status had it, and none was replayed."""
    took = sum(
        node["runs"] for fault in result["faults"] if faults.is_kill(fault)
        for node in (fault.get("before") or {}).values()
    )  # fmt: skip
    return took > 0 and not result["requests"].get("replayed")


def complaints(result):
    """What must not be, a line each."""
    counts = result["counts"]
    for name in ("failed", "changed", "hung"):
        if counts[name]:
            yield f"{counts[name]} requests {name}"
    if not counts["finished"]:
        yield "no request finished"
    if result["left_over"]:
        yield f"{result['left_over']} requests are still there, though their clients are gone"
    if not result["plan"]["heads_die"] and not_replayed(result):
        yield "workers were killed with requests on them, and none was replayed"
    if result["state"] != "ready":
        yield f"the cluster is {result['state']} in the end, with all its workers there"
    yield from result["crashes"]
    for command in result["commands"]:
        if command["code"] in (None, "no end", 2):
            yield f"`troupe {' '.join(command['words'])}` ended with {command['code']}: {command['said']}"
    for record in result["bad"][:5]:
        yield f"request {record['key']} {record['verdict']}: {record['why'][:300]}"


def run(plan, view):
    """The whole of it; the result is plain data."""
    private = network.enter_private()
    folder = Path(tempfile.mkdtemp(prefix="troupe-chaos-"))
    try:
        view.say(f"-- {DIFFERENT_REQUESTS} answers without faults first, to compare with")
        reference = answers_without_faults(plan, folder)
        kind = HeadsStage if plan.heads_die else MixedStage
        with kind(network.best_network(str(os.getpid()), private), plan.head_flags,
                        log_level=plan.log_level, twins=plan.twins) as stage:  # fmt: skip
            view.say(f"-- {plan.streams} streams, seed {plan.seed}, network: {stage.network.name}")
            view.say(f"-- to look on: {watch_line(stage, private)}")
            result = Run(plan, stage, view).go(reference)
            if plan.keep:
                shutil.copytree(stage.folder, plan.keep, dirs_exist_ok=True,
                                ignore=lambda folder, names: {"state"} & set(names))  # fmt: skip
        return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def watch_line(stage, private):
    inside = f"nsenter --net=/proc/{os.getpid()}/ns/net " if private else ""
    return f"{inside}{running.TROUPE} top --state-dir {stage.state_dir}"


# --- The command ------------------------------------------------------------------------------


def ms(seconds):
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"


def summary(result):
    """The result for people, as lines."""
    counts = result["counts"]
    yield ""
    yield f"network: {result['plan']['network']}"
    yield from (f"left out: {kind}, {why}" for kind, why in sorted(result["plan"]["left_out"].items()))
    if result["plan"].get("twins"):
        killed = result["killed"]
        yield f"killed {killed['twins']} workers on a GPU's twin, {killed['processors']} on processors"
    kinds = {}
    for fault in result["faults"]:
        kinds[fault["kind"]] = kinds.get(fault["kind"], 0) + 1
    yield "did " + ", ".join(f"{n} x {kind.replace('_', ' ')}" for kind, n in sorted(kinds.items()))
    yield f"{'':40} {'promised':>9} {'count':>7} {'median':>9} {'p99':>9} {'longest':>9}  verdict"
    for d in result["figures"]:
        times = " ".join(f"{ms(d[key]):>9}" for key in ("p50", "p99", "max"))
        promise = f"{'< ' + ms(d['promise']) if d['promise'] else '':>9}"
        yield f"{d['name']:40} {promise} {d['count']:>7} {times}  {measure.verdict(d)}"
    yield ""
    wrong = list(complaints(result))
    yield from wrong
    verdict = "SOMETHING WAS LOST OR CHANGED" if wrong else "nothing lost, nothing changed"
    yield (
        f"{verdict}: {counts['finished']} requests finished, {counts['failed']} failed, "
        f"{counts['changed']} changed, {counts['hung']} hung; {counts['aborted']} left by their clients, "
        f"{result['requests'].get('replayed')} replays, {result['tokens']} tokens, "
        f"{counts['refused']} times asked to come back later before they were accepted"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="tools/chaos")
    parser.add_argument("--seconds", type=float, default=60, help="how long faults come (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of requests and faults (default: 1)")
    parser.add_argument("--streams", type=int, default=32, help="requests at a time (default: 32)")
    parser.add_argument("--workers", type=int, default=4, help="at most (default: 4)")
    parser.add_argument("--twins", type=int, default=0,
                        help="workers on a GPU's twin, slow ones, of all (default: 0)")  # fmt: skip
    parser.add_argument("--heads", type=int, default=1, choices=(1, 2),
                        help="2: the head has a standby, and both die; 1: it dies, and comes back, "
                             "if --kinds names kill_head or hang_head (default: 1)")  # fmt: skip
    parser.add_argument("--longest-prompt", type=int, default=2500, help="tokens (default: 2500)")
    parser.add_argument("--longest-answer", type=int, default=500, help="tokens (default: 500)")
    parser.add_argument("--kinds", help=f"of {', '.join(faults.WEIGHTS)}; comma-separated (default: all)")
    parser.add_argument("--report", type=Path, help="a file for the result; JSON if its name ends so")
    parser.add_argument("--keep", type=Path, help="a folder for the logs of all processes")
    parser.add_argument("--log-level", default="info", help="of the cluster (default: info)")
    parser.add_argument("flags", nargs="*", help="flags of `troupe head`, after --")
    options = parser.parse_args()
    kinds = tuple(options.kinds.split(",")) if options.kinds else None
    if unknown := set(kinds or ()) - set(faults.WEIGHTS):
        parser.error(f"there is no fault {', '.join(unknown)}; there are {', '.join(faults.WEIGHTS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Workers that share a machine must not each take what is free; a small cache starts faster, too.
    flags = tuple(options.flags)
    if "--kv-cache-memory" not in flags:
        flags += ("--kv-cache-memory", "256MiB")
    plan = Plan(options.seconds, options.seed, options.streams, options.workers, options.twins, kinds,
                flags, options.log_level, options.keep, options.longest_prompt,
                options.longest_answer, options.heads)  # fmt: skip
    try:
        result = run(plan, View())
    except KeyboardInterrupt:
        return 130
    lines = list(summary(result))
    print("\n".join(lines))
    if options.report:
        as_json = options.report.suffix == ".json"
        options.report.write_text(json.dumps(result) if as_json else "\n".join(lines) + "\n")
    return 1 if any(complaints(result)) else 0


if __name__ == "__main__":
    sys.exit(main())
