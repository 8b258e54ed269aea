"""Runs the program as its users do: real processes, real sockets, every wait with a deadline."""

import concurrent.futures
import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TROUPE = Path(os.environ.get("TROUPE") or ROOT / "build" / "troupe").resolve()
# The same program with test doubles: the device `cuda-twin`, and what TROUPE_TEST_* ask for.
TESTING = Path(os.environ.get("TROUPE_TESTING") or TROUPE.parent / "troupe-testing").resolve()
# The same as of an earlier protocol.
OLDER = Path(os.environ.get("TROUPE_OLDER") or TROUPE.parent / "troupe-older").resolve()
DEMO = ROOT / "tools" / "demo" / "pocket-dictionary"
GOLDEN = ROOT / "tests" / "golden"
V3 = GOLDEN / "v3"
V2_LITE = GOLDEN / "v2-lite"
# How long a test waits for what has to come: a minute, so that no busy machine makes it fail. What a test
# expects not to come is waited for in its own time.
PATIENCE_S = 60
# Where clusters keep their state: in memory, where there is some to spare. A disk that tests share hangs for
# seconds at times, as heads tell then; what that does to them tests/cluster/test_bad_disk.py asks.
MEMORY = Path("/dev/shm")
ENOUGH = 4 << 30
IN_MEMORY = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ENOUGH
STATE_ROOT = MEMORY if IN_MEMORY else None
STATE_PREFIX = "troupe-test-"
# One mark for all clusters of this test run, so that leftovers can be told from strangers' processes.
MARK = "TROUPE_TEST_CLUSTER"


def wait_until(condition, what, seconds=PATIENCE_S):
    """Waits for a condition; its last value comes back."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return value


def signal_mask(pid):
    """Blocked signals of a process, once its main() has begun; 0 before."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(re.search(r"^SigBlk:\s*(\w+)", status, re.MULTILINE)[1], 16)


def begun(process):
    """Waits until main() has begun: what the loader does before takes a few milliseconds."""
    bit = 1 << (signal.SIGINT - 1)
    wait_until(lambda: signal_mask(process.pid) & bit or process.poll() is not None, "main() has begun")
    assert process.poll() is None
    return process


def run(*words, seconds=2 * PATIENCE_S, env=None, stdin=None, program=TROUPE):
    """A command to its end. Fails the test when it takes too long or is ended by a signal."""
    done = subprocess.run(
        [str(program), *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode >= 0, f"{words} was ended by signal {-done.returncode}: {done.stderr}"
    return done


def generate(model, *words, seconds=2 * PATIENCE_S, program=TROUPE):
    """The object of `troupe generate --json`."""
    words = ["generate", "--model", model, "--json", "--log-level", "warn", *words]
    done = run(*words, seconds=seconds, program=program)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def cpu_families_here():
    """The families of instructions that this processor has, slowest first."""
    flags = set(Path("/proc/cpuinfo").read_text().split("flags")[1].split("\n")[0].split())
    families = []
    if {"avx2", "fma", "f16c"} <= flags:
        families.append("avx2")
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi", "avx512_bf16"} <= flags:
        families.append("avx512")
        if {"amx_tile", "amx_bf16"} <= flags:
            families.append("amx")
    return families


class Ports:
    """Ports for this process alone, until it ends, whatever tests run beside it: each is the lock of one byte
    of a file that all of them share."""

    def __init__(self):
        self.mine = set()  # a lock keeps other processes out, not this one
        self.mutex = threading.Lock()
        path = Path(tempfile.gettempdir()) / f"troupe-test-ports-{os.getuid()}"
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self):
        """Below those that the system gives to outgoing connections: nobody else takes it meanwhile."""
        with self.mutex:
            while True:
                port = random.SystemRandom().randrange(12_000, 32_000)
                if port not in self.mine and self._lock(port) and self._is_free(port):
                    self.mine.add(port)
                    return port

    def _lock(self, port):
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except (BlockingIOError, PermissionError):
            return False
        return True

    @staticmethod
    def _is_free(port):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("0.0.0.0", port))
            return True
        return False


free_port = Ports().take


@contextlib.contextmanager
def locked(path):
    """For this process alone meanwhile: what it makes others want as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def float32_bits(values):
    return [None if v is None else struct.pack("<f", v).hex() for v in values]


def get(base_url, path, seconds=PATIENCE_S):
    with urllib.request.urlopen(base_url + path, timeout=seconds) as response:
        return response.read().decode()


def post(base_url, path, body, seconds=2 * PATIENCE_S):
    """Status and JSON of an answer, an error's too."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(base_url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def pids_marked(mark):
    """Living processes that were started with a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() and alive(folder.name):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def listening_ports(pids):
    """Ports on which these processes listen, over IPv4, each with the number of its socket."""
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(fd)))
            except OSError:
                pass
    return {port: inode for port, inode in tcp_listeners().items() if inode in inodes}


def tcp_listeners():
    ports = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A":
            ports[int(words[1].split(":")[1], 16)] = words[9]
    return ports


def shared_memory():
    """Files in /dev/shm, without those that a living process has mapped."""
    files = {path.name for path in Path("/dev/shm").iterdir() if not path.name.startswith(STATE_PREFIX)}
    if not files:
        return files
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text()
        except OSError:
            continue
        files -= {name for name in files if f"/dev/shm/{name}" in text}
    return files


class Process:
    """A long-running command whose output goes to a file."""

    def __init__(self, words, env, log_path, prefix=(), program=TROUPE):
        """The prefix is a program that becomes the command, such as `ip netns exec NAME`."""
        self.log_path = log_path
        words = [*prefix, str(program), *map(str, words)]
        with open(log_path, "ab") as log:
            self.popen = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
            )
        self.pid = self.popen.pid

    def log(self):
        return Path(self.log_path).read_text(errors="replace")

    def kill(self, number=signal.SIGKILL):
        self.popen.send_signal(number)

    def exit_code(self, seconds=PATIENCE_S):
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {seconds} s:\n{self.log()}") from None

    def wait_log(self, text, seconds=PATIENCE_S):
        try:
            wait_until(lambda: text in self.log(), f"'{text}'", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error} in\n{self.log()}") from None


class Cluster:
    """A cluster with its own state folder and ports. close() leaves nothing of it."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix=STATE_PREFIX, dir=STATE_ROOT))
        self.state_dir = self.folder / "state"
        self.mark = uuid.uuid4().hex
        self.env = {
            **{k: v for k, v in os.environ.items() if k != "TROUPE_API_KEY"},
            "TROUPE_STATE_DIR": str(self.state_dir),
            MARK: self.mark,
        }
        self.control_port = free_port()
        self.http_port = free_port()
        self.base_url = f"http://127.0.0.1:{self.http_port}"
        self.processes = []
        self.shared_memory = shared_memory()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def start(self, *words, env=None, program=TROUPE):
        """Any command as a process of this cluster."""
        log = self.folder / f"{len(self.processes)}-{words[0]}.log"
        process = Process(words, {**self.env, **(env or {})}, log, program=program)
        self.processes.append(process)
        return process

    def _head_words(self, model):
        return ["--model", model, "--listen", f"127.0.0.1:{self.control_port}", "--port", self.http_port]

    def up(self, model, *words, workers=2, ready=True, program=TROUPE, threads=1):
        # Beside other tests, threads that share a step mostly wait for each other. None: as `up` has it.
        threads = [] if "--threads" in words or threads is None else ["--threads", threads]
        words = ["up", "--workers", workers, *threads, *self._head_words(model), *words]
        process = self.start(*words, program=program)
        if ready:
            self.wait_ready()
        return process

    def head(self, model, *words, env=None, program=TROUPE):
        return self.start("head", *self._head_words(model), *words, env=env, program=program)

    def worker(self, *words, threads=1, program=TROUPE):
        words = ["worker", "--head", f"127.0.0.1:{self.control_port}", "--threads", threads, *words]
        return self.start(*words, program=program)

    def status(self, seconds=PATIENCE_S):
        return json.loads(get(self.base_url, "/cluster/status", seconds))

    def status_or_none(self):
        """None while the head cannot be asked."""
        try:
            return self.status(5)
        except OSError:
            return None

    def state(self):
        status = self.status_or_none()
        return status and status["cluster"]["state"]

    def _wait(self, condition, what, seconds=PATIENCE_S):
        try:
            wait_until(condition, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def wait_answers(self, seconds=PATIENCE_S):
        self._wait(self.status_or_none, "the head answers", seconds)

    def wait_joinable(self):
        self._wait((self.state_dir / "join").exists, "the head writes its join file")

    def wait_ready(self, seconds=PATIENCE_S):
        self._wait(lambda: self.state() == "ready", "the cluster is ready", seconds)

    def logs(self):
        return "\n".join(f"== {p.log_path.name}\n{p.log()[-4000:]}" for p in self.processes)

    def joined_nodes(self):
        """None is before the head answers; its join file is there earlier."""
        status = self.status_or_none() or {"nodes": []}
        return [node for node in status["nodes"] if node["state"] in ("joining", "ready")]

    def ready_nodes(self):
        return [node for node in self.status()["nodes"] if node["state"] == "ready"]

    def post(self, path, body, seconds=2 * PATIENCE_S):
        return post(self.base_url, path, body, seconds)

    def complete(self, prompt, **fields):
        status, answer = self.post("/v1/completions", {"prompt": prompt, **fields})
        assert status == 200, f"{answer}\n{self.logs()}"
        return answer

    def pids(self):
        return pids_marked(self.mark.encode())

    def stop(self):
        """`troupe stop`; tells how long it took."""
        started = time.monotonic()
        done = run("stop", env=self.env)
        assert done.returncode == 0, done.stderr
        return time.monotonic() - started

    def assert_nothing_left(self, ports):
        """No process, no listening socket of `listening_ports`, no shared-memory file. What others that run
        beside this cluster have in shared memory goes, or is mapped."""
        left = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.pids()}
        assert not left, f"processes are left: {left}"
        listened_on = ports.items() & tcp_listeners().items()
        assert not listened_on, f"there are still listeners: {listened_on}"
        wait_until(lambda: not shared_memory() - self.shared_memory, "shared-memory files are left")

    def close(self):
        """Ends everything, whatever happened before."""
        pids = self.pids()
        for process in self.processes:
            if process.popen.poll() is None:
                process.kill(signal.SIGCONT)
                process.kill(signal.SIGTERM)
        end = time.monotonic() + PATIENCE_S
        while self.pids() and time.monotonic() < end:
            time.sleep(0.02)
        stuck = self.pids()
        for pid in stuck:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes:
            process.popen.wait(PATIENCE_S)
        logs = self.logs()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not stuck, f"{stuck} of {pids} did not end within {PATIENCE_S} s of SIGTERM\n{logs}"


def at_once(function, items, threads=64):
    """The results of a function on many items, computed together."""
    items = list(items)
    with concurrent.futures.ThreadPoolExecutor(min(threads, max(1, len(items)))) as pool:
        return list(pool.map(function, items))
