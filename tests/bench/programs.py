"""What is run beside each other: Troupe, llama.cpp, and the programs that read and multiply."""

import json
import os
import re
import subprocess
from pathlib import Path

from checkpoints import PEERS, ROOT, bytes_of, steps, weight_files

PROGRAMS = ROOT / "build" / "tests" / "bench"
THREADS = os.cpu_count()


class Engine:
    """A program that loads a model and answers a line of JSON with a line of JSON; see engine_bench.cpp.
    It computes only while it is asked."""

    def __init__(self, words, env=None):
        self.process = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **(env or {})},
        )  # fmt: skip
        self.load_s = self.answer()["load_s"]

    def answer(self):
        line = self.process.stdout.readline()
        assert line, f"{self.process.args} ended with {self.process.wait()}"
        return json.loads(line)

    def streams(self, streams):
        self.process.stdin.write(json.dumps({"streams": streams}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def resident_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def troupe(folder, threads=THREADS, kv_bytes=0, numerics="bf16"):
    return Engine([PROGRAMS / "engine_bench", folder, threads, kv_bytes, numerics])


def llama(path, context, sequences=1, threads=THREADS):
    """llama.cpp; `context` positions for each sequence."""
    script = Path(__file__).with_name("llama_peer.py")
    return Engine([PEERS, script, "serve", path, threads, context, sequences])


def output(*words, text=None, env=None):
    done = subprocess.run([str(word) for word in words], input=text, capture_output=True, text=True,
                          env={**os.environ, **(env or {})})  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def read_speed(name, threads=THREADS, seconds=2):
    """Bytes a second, of exactly what steps of one sequence read, in their order."""
    lines = [str(bytes_of(name) + 4096)] + [f"{place} {size}" for place, size in steps(name, 8)]
    return float(output(PROGRAMS / "read_bench", "memory", threads, seconds, text="\n".join(lines)))


def file_speed(name, threads=THREADS):
    """Bytes a second, of its files in the page cache."""
    return float(output(PROGRAMS / "read_bench", "files", threads, *weight_files(name)))


def touch_speed(size, threads=THREADS):
    """Bytes a second, of memory that a process has never used."""
    return float(output(PROGRAMS / "read_bench", "touch", threads, size))


LINE = re.compile(r"(\S.*?)\s+(\d+) x\s+(\d+)\s+rows\s+(\d+)\s+.*?([\d.]+) GFLOP/s")


def speeds(text):
    """{(format, n, k, rows): operations a second} of what kernels_bench and onednn_bench print."""
    return {(m[1], int(m[2]), int(m[3]), int(m[4])): float(m[5]) * 1e9 for m in LINE.finditer(text)}


def our_products(rows, threads=THREADS):
    return speeds(output(PROGRAMS / "kernels_bench", threads, cpu_family(), *rows))


def onednn_products(n, k, rows, threads=THREADS):
    """None where oneDNN was not found when the benchmarks were built."""
    program = PROGRAMS / "onednn_bench"
    if not program.exists():
        return None
    return speeds(output(program, n, k, *rows, env={"OMP_NUM_THREADS": str(threads)}))


def cpu_family():
    from running import cpu_families_here
    return (cpu_families_here() or ["baseline"])[-1]
