"""A cluster whose workers come and go by our hand: the head, workers, and the ways between them."""

import signal
import threading

import running


class Worker:
    def __init__(self, process, link, number):
        self.process = process
        self.link = link
        self.number = number
        self.pid = process.pid
        self.leaving = False
        self.killed = False

    def alive(self):
        return self.process.popen.poll() is None

    def kill(self, number=signal.SIGKILL):
        if self.alive():
            self.killed = self.killed or number in (signal.SIGKILL, signal.SIGTERM)
            self.process.kill(number)

    def end(self):
        """What is wrong with how it ended, or None."""
        code = self.process.popen.returncode
        # One that was drained may leave by itself.
        if self.killed or (self.leaving and code == 0):
            return None
        return f"worker {self.number} (process {self.pid}) ended by itself with {code}:\n" + "\n".join(
            self.process.log().splitlines()[-8:]
        )


class Stage(running.Cluster):
    def __init__(self, network, head_flags=(), worker_flags=(), log_level="info", program=running.TROUPE):
        super().__init__()
        self.program = program  # of heads and workers that start from now on
        self.network = network
        self.head_flags = list(head_flags)
        self.head_env = {}
        self.worker_flags = [*worker_flags, "--log-level", log_level]
        self.log_level = log_level
        self.workers = []
        self.lock = threading.Lock()  # a thread may hurt them while another looks on
        self.started = 0
        self.crashes = []

    def _head_words(self, model):
        return ["--model", model, "--listen", f"{self.network.hub}:{self.control_port}",
                "--port", self.http_port]  # fmt: skip

    def start_head(self):
        self.head_process = self.head(running.DEMO, "--log-level", self.log_level, *self.head_flags,
                                      env=self.head_env, program=self.program)  # fmt: skip
        self.wait_joinable()
        return self.head_process

    def add_worker(self, *words, program=None):
        link = self.network.join(self.control_port)
        self.started += 1
        log = self.folder / f"worker-{self.started}.log"
        words = ["worker", "--head", link.head, "--threads", 1, *self.worker_flags, *words]
        process = running.Process(words, self.env, log, prefix=link.prefix, program=program or self.program)
        self.processes.append(process)
        worker = Worker(process, link, self.started)
        self.workers.append(worker)
        return worker

    def living(self):
        """Those that may be made to suffer. Dead ones are tidied away."""
        with self.lock:
            for worker in [w for w in self.workers if not w.alive()]:
                self.workers.remove(worker)
                worker.link.close()
                if said := worker.end():
                    self.crashes.append(said)
            return [worker for worker in self.workers if not worker.leaving]

    def node_of(self, pid):
        status = self.status_or_none() or {"nodes": []}
        nodes = [node for node in status["nodes"] if node["pid"] == pid and node["state"] != "lost"]
        return nodes[-1]["id"] if nodes else None

    def close(self):
        try:
            super().close()
        finally:
            self.network.close()


class Watcher:
    """Keeps the newest status and every event that there ever was."""

    def __init__(self, stage, every_s=0.25):
        self.stage = stage
        self.every_s = every_s
        self.status = None
        self.events = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def look(self):
        try:
            status = self.stage.status_or_none()
        except ValueError:
            status = None  # cut off in the middle of an answer
        if status:
            self.status = status
            for event in status["events"]:
                self.events[(event["time"], event["kind"], event["text"])] = event

    def _run(self):
        while not self.ended.wait(self.every_s):
            self.look()

    def all_events(self):
        return sorted(list(self.events.values()), key=lambda event: event["time"])

    def close(self):
        self.ended.set()
        self.thread.join()
        self.look()
