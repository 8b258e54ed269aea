"""When a client sees that nodes are lost, and that the cluster serves again.

A process of its own asks for /cluster/status every millisecond while it watches something; all clocks of
the test are the machine's monotonic one. It takes a line on stdin for each watch, `{"watch": N, "pids":
[..], "seconds": S}`, and tells what it saw before and what it saw in the end, after so many seconds at the
latest.
"""

import argparse
import http.client
import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

EVERY_S = 0.001
# What was not noticed by then counts as noticed then: the worst that can be said.
NEVER_S = 8


def nodes_by_pid(status):
    """What each process is: the newest of its nodes, and how many requests its replicas run."""
    runs = {}
    for replica in status["replicas"]:
        for host in {shard["device"].split("/")[0] for shard in replica["shards"]}:
            runs[host] = runs.get(host, 0) + replica["running"]
    return {
        node["pid"]: {"node": node["id"], "incarnation": node.get("incarnation"), "state": node["state"],
                      "runs": runs.get(node["id"], 0)}
        for node in sorted(status["nodes"], key=lambda node: node.get("incarnation") or 0)
    }  # fmt: skip


def is_member(node):
    return node is not None and node["state"] not in ("lost", "joining")


class Watch:
    """One fault, as it shows."""

    def __init__(self, number, pids, seconds=NEVER_S):
        self.number = number
        self.pids = pids
        self.end = time.monotonic() + seconds
        self.before = None
        self.told = {"watch": number, "lost": {}, "again": None}

    def look(self, status, now):
        """What to say of this answer that came now, or None."""
        nodes = nodes_by_pid(status)
        if self.before is None:
            self.before = {pid: nodes[pid] for pid in self.pids if is_member(nodes.get(pid))}
            return {"watch": self.number, "before": self.before}
        for pid, old in self.before.items():
            node = nodes.get(pid)
            if not is_member(node) or node["incarnation"] != old["incarnation"]:
                self.told["lost"].setdefault(pid, now)
        seen = len(self.told["lost"]) == len(self.before)
        if seen and status["cluster"]["state"] == "ready":
            self.told["again"] = now
        return self.told if now > self.end or (seen and self.told["again"]) else None


class Poller:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        self.asked = queue.Queue()
        self.watches = []

    def listen(self):
        for line in sys.stdin:
            words = json.loads(line)
            self.asked.put(Watch(words["watch"], words["pids"], words["seconds"]))
        self.asked.put(None)

    def status(self):
        """(the status or None, when the answer was there)."""
        try:
            self.connection.request("GET", "/cluster/status")
            body = self.connection.getresponse().read()
            return json.loads(body), time.monotonic()
        except (OSError, http.client.HTTPException, ValueError):
            self.connection.close()
            return None, time.monotonic()

    def take(self):
        """Whether there is more to do; waits while nothing is watched."""
        while not self.watches or not self.asked.empty():
            if (watch := self.asked.get()) is None:
                return False
            self.watches.append(watch)
        return True

    def run(self):
        threading.Thread(target=self.listen, daemon=True).start()
        while self.take():
            next_at = time.monotonic() + EVERY_S
            status, now = self.status()
            for watch in list(self.watches):
                said = watch.look(status, now) if status else watch.told if now > watch.end else None
                if said is not None:
                    print(json.dumps(said), flush=True)
                if said is watch.told:
                    self.watches.remove(watch)
            time.sleep(max(0, next_at - time.monotonic()))


class Notices:
    """The watching process, from the test's side."""

    def __init__(self, port, seconds=NEVER_S):
        self.seconds = seconds
        self.popen = subprocess.Popen([sys.executable, __file__, "--port", str(port)], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        self.changed = threading.Condition()
        self.before = {}
        self.ended = {}
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.popen.stdout:
            told = json.loads(line)
            for name in ("before", "lost"):  # JSON's keys are text
                if name in told:
                    told[name] = {int(pid): value for pid, value in told[name].items()}
            with self.changed:
                (self.before if "before" in told else self.ended)[told["watch"]] = told
                self.changed.notify_all()

    def begin(self, number, pids):
        """Watches these processes; what they were, by process, once it is known. None: nobody says."""
        self.popen.stdin.write(json.dumps({"watch": number, "pids": pids, "seconds": self.seconds}) + "\n")
        self.popen.stdin.flush()
        with self.changed:
            self.changed.wait_for(lambda: number in self.before or number in self.ended, self.seconds + 2)
            return self.before.get(number, {}).get("before")

    def end(self, number):
        """What came of it, waited for: {"lost": {process: when}, "again": when or None}."""
        with self.changed:
            self.changed.wait_for(lambda: number in self.ended, self.seconds + 2)
            return self.ended.get(number, {"lost": {}, "again": None})

    def close(self):
        self.popen.stdin.close()
        self.popen.terminate()
        self.popen.wait()
        self.thread.join()


def notice_times(fault):
    """(seconds until each member that a fault took was seen to be lost, how many never were). It
    counts as one that nobody ever saw if nobody could say whom it took."""
    if fault["before"] is None:
        return [NEVER_S], 1
    took = [fault["lost"].get(pid) for pid in fault["before"]]
    return [NEVER_S if at is None else max(0, at - fault["at"]) for at in took], took.count(None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    Poller(parser.parse_args().port).run()


if __name__ == "__main__":
    main()
