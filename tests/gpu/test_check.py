"""tools/gpu/check where there is no GPU: what it says then, and that every line of it runs."""

import fnmatch
import json
import os
import re
import subprocess
import time

import pytest

import check
import clusters
from promises import bound
from running import DEMO, ROOT, TROUPE
from steps import Check, NotMeasured, rows_of_bench

SMI = "NVIDIA H900, 580.1, 9.0, 81559 MiB, Enabled, 700.00 W, 1980 MHz"
PASSED = "[doctest] test cases:  3 |  3 passed | 0 failed | 0 skipped"
BENCH = (
    '{"device": "x"}\n{"row": "copy", "value": 3000, "unit": "GB/s"}\n'
    '{"row": "slow", "value": 900, "unit": "GB/s", "ratio": 0.3, "of": "copy", "needs": 0.8}\n'
    '{"row": "other", "not_measured": "no room"}\n'
    '{"row": "launches", "value": 9, "unit": "launches", "at_most": 8}\n{"row": "cut o'
)


@pytest.fixture
def machine(tmp_path):
    """A machine with stand-ins for the driver's tools, and a folder of stand-ins for programs."""

    class Machine:
        bin, build, out, report = (tmp_path / name for name in ("bin", "build", "out", "REPORT.md"))

        def script(self, path, does):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/bash\n{does}\n")
            path.chmod(0o755)

        def run(self, *words):
            env = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
            words = [ROOT / "tools/gpu/check", "--out", self.out, "--report", self.report, *words]
            return subprocess.run(words, env=env, capture_output=True, text=True, timeout=1300)

        def rows(self):
            text = (self.out / "REPORT.md").read_text()
            lines = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
            return {cells[0]: cells[1:] for cells in lines[1:]}

    machine = Machine()
    machine.script(machine.bin / "nvidia-smi", f"echo '{SMI}'")
    machine.script(machine.bin / "compute-sanitizer", 'shift 4; exec "$@"')
    machine.script(machine.bin / "ncu", "echo 'gpu__time_duration.sum'; exit 1")
    for test in ("test_cuda", "test_cuda_device", "test_cuda_instructions", "test_cuda_mma_gpu"):
        machine.script(machine.build / "tests/kernels" / test,
                       'echo "add 0 0 = 0" >"${TROUPE_TEST_INSTRUCTIONS:-/dev/null}"\n' + f"echo '{PASSED}'")
    machine.script(machine.build / "tests/bench/gpu_bench", f"cat <<'END'\n{BENCH}\nEND")
    machine.report.write_text("# Before\n")
    return machine


def test_without_a_gpu_nothing_is_measured(machine):
    machine.script(machine.bin / "nvidia-smi", "echo 'no devices were found'; exit 9")
    done = machine.run()
    assert done.returncode == 0, done.stdout + done.stderr
    rows = machine.rows()
    assert len(rows) == 13
    assert all(cells[:2] == ["not measured", check.NO_GPU] for cells in rows.values()), rows
    assert machine.report.read_text() == "# Before\n"


def test_every_step_is_written_down(machine):
    done = machine.run("--build", machine.build)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = machine.rows()
    assert rows["machine"] == ["measured", SMI, ""]
    for what in ("bits", "row invariance", "known questions in the GPU's memory",
                 "queue, graphs and memory", "tensor cores: bounds and row invariance"):
        assert rows[what] == ["measured", "3 test cases passed", ""]
    assert rows["copy"] == ["measured", "3000 GB/s", ""]
    assert rows["slow"] == ["measured", "900 GB/s, 0.30 of the copy, **too little**", "0.8"]
    assert rows["other"] == ["not measured", "no room", ""]
    assert rows["launches"] == ["measured", "9 launches, **too much**", "at most 8"]
    assert "speed" not in rows  # no kind of GPU is called so, or cuBLAS was not measured
    assert rows["demo over HTTP"] == ["not measured", "troupe is not built", ""]
    assert rows["killed under load"][0] == "not measured"
    assert rows["compute-sanitizer"][0] == rows["ncu"][0] == "measured"
    assert (machine.out / "instructions.txt").read_text() == f"# {SMI}\nadd 0 0 = 0\n"
    report = machine.report.read_text()
    assert report.startswith("# Before\n") and report.endswith((machine.out / "REPORT.md").read_text())


def test_what_fails_or_hangs_is_told_and_the_rest_goes_on(machine):
    failed = f"echo '{PASSED.replace('0 failed', '2 failed')}'"
    machine.script(machine.build / "tests/kernels/test_cuda",
                   f"case $1 in *exclude*) sleep 50;; *) {failed};; esac")
    machine.script(machine.bin / "ncu", "echo 'no permission to use the counters'; exit 1")
    started = time.monotonic()
    done = machine.run("--build", machine.build, "--seconds", "20")
    bound("ended in its time", time.monotonic() - started, 25)
    assert done.returncode == 1
    rows = machine.rows()
    assert rows["bits"] == ["failed", "no end within its time; see bits.log", ""]
    # What hangs takes none of the others' time.
    for what in ("tensor cores: bounds and row invariance", "slow", "copy"):
        assert rows[what][0] == "measured", what
    machine.script(machine.build / "tests/kernels/test_cuda", failed)
    machine.run("--build", machine.build)
    rows = machine.rows()
    assert rows["row invariance"] == ["failed", "2 of 3 test cases; see invariance.log", ""]
    assert rows["ncu"][0] == "not measured" and "no permission to use the counters" in rows["ncu"][1]


def test_a_gpu_that_no_kernel_runs_on_is_not_measured(machine):
    """Only one case says so."""
    said = "echo 'x.cpp:1: MESSAGE: no GPU that reaches it: no kernel runs'"
    machine.script(machine.build / "tests/kernels/test_cuda",
                   f"case $1 in *exclude*|*starts*) {said};; esac; echo '{PASSED}'")
    machine.run("--build", machine.build)
    rows = machine.rows()
    for what in ("bits", "row invariance"):
        assert rows[what] == ["not measured", "no GPU that reaches it: no kernel runs", ""], what
    looked = rows["compute-sanitizer"]
    assert looked[0] == "measured" and "(no GPU that reaches it: no kernel runs)" in looked[1]
    # But not if something failed.
    machine.script(machine.build / "tests/kernels/test_cuda",
                   f"{said}; echo '{PASSED.replace('0 failed', '1 failed')}'")
    machine.run("--build", machine.build)
    assert machine.rows()["bits"] == ["failed", "1 of 3 test cases; see bits.log", ""]


def test_what_is_asked_for_by_name_is_there():
    text = "".join(path.read_text() for path in (ROOT / "tests/kernels").glob("*.cpp"))
    cases = re.findall(r'TEST_CASE\(\s*"([^"]+)"', text)
    filters = [check.STARTS.removeprefix("--test-case="), check.INVARIANCE, check.KNOWN]
    filters += [cases for _, _, cases in check.SANITIZED]
    filters += [f.split("=")[1] for b in check.BACKENDS.values() for key in b if key.endswith("_filter")
                for f in b[key]]  # fmt: skip
    for pattern in filter(None, ",".join(filters).split(",")):
        assert any(fnmatch.fnmatch(case, pattern) for case in cases), pattern


def test_the_order_of_steps_leaves_each_its_time(tmp_path):
    ends = {}
    steps = Check(tmp_path, 100, {})
    steps.steps([(what, least, most, lambda what=what: ends.update({what: steps.left()}))
                 for what, least, most in (("first", 60, 300), ("middle", 10, 60), ("last", 30, 60))])
    assert 59 < ends["first"] <= 60
    assert 59 < ends["middle"] <= 60
    assert 59 < ends["last"] <= 60


def test_what_was_measured_is_a_file_that_plan_takes(machine, tmp_path):
    gpu = SMI.replace("H900", "H100 80GB HBM3")
    row = '{"row": "%s", "value": %s, "unit": "x", "plan": {"numerics": "cuda_mma", %s}}'
    bench = "\n".join([
        '{"row": "copy", "value": 3000, "unit": "GB/s"}',
        '{"row": "matmul, cuBLAS, bf16", "value": 700, "unit": "TFLOP/s"}',
        row % ("one", 9, '"codes": "int4", "rows": 1, "element_s": 2e-13'),
        row % ("eight", 9, '"codes": "int4", "rows": 8, "element_s": 3e-13'),
        row % ("decode", 9, '"attention": "attention_batch", "rate": 2e14'),
    ])  # fmt: skip
    machine.script(machine.bin / "nvidia-smi", f"echo '{gpu}'")
    machine.script(machine.build / "tests/bench/gpu_bench", f"cat <<'END'\n{bench}\nEND")
    machine.run("--build", machine.build)
    assert machine.rows()["speed"][1] == "for troupe plan --measured: measured-cuda_mma.json"
    file = machine.out / "measured-cuda_mma.json"
    written = json.loads(file.read_text())
    assert written["device"] == "h100-80g" and written["compute"] == {"bf16": 7e14, "fma": 6.7e13}
    assert [p["rows"] for p in written["products"][0]["points"]] == [1, 8]
    words = ["--model", DEMO, "--nodes", "1x1:h100-80g", "--numerics", "cuda_mma", "--measured", file]
    done = subprocess.run([TROUPE, "plan", *words, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measured" in json.loads(done.stdout)["speed"]["devices"][0]["source"]


def test_a_figure_below_its_bar_says_so():
    rows = {row.what: row.text for row in rows_of_bench(BENCH, "measured")}
    assert "too little" in rows["slow"] and "too little" not in rows["copy"]


@pytest.mark.long
def test_the_twin_goes_through_every_line(machine):
    build = TROUPE.parent
    if not (build / "tests/bench/gpu_bench_twin").exists():
        pytest.skip("built without the twin's programs")
    done = machine.run("--backend", "cuda-twin", "--build", build, "--seconds", "1200")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = machine.rows()
    assert not [what for what, cells in rows.items() if cells[0] in ("measured", "failed")]
    assert rows["instructions"][1].startswith("cuda_twin: ")
    for what in ("bits", "row invariance", "queue, graphs and memory", "copy", "demo over HTTP",
                 "tensor cores: bounds and row invariance", "killed under load",
                 "bf16: launches a layer outside graphs"):
        assert rows[what][0] == "dry run", (what, rows[what])
    assert machine.report.read_text() == "# Before\n"
    assert "No figure here means anything" in (machine.out / "REPORT.md").read_text()


def test_the_demo_is_served_and_goes_on_when_its_worker_is_killed(troupe):
    text, expected = clusters.demo("cpu", 400, 180)
    assert text.startswith("the tokens of a CPU; one sequence ")
    assert clusters.killed("cpu", 400, expected, 180).startswith("4 requests in flight, all tokens unchanged")


def test_a_device_that_workers_do_not_offer_is_not_measured(troupe):
    with pytest.raises(NotMeasured, match="--device cuda:999"):
        clusters.demo("cuda:999", 8, 30)


def test_packed_programs_bring_their_libraries(machine, tmp_path):
    for path in check.programs(check.BACKENDS["cuda"]):
        target = machine.build / path
        target.unlink(missing_ok=True)
        target.symlink_to(TROUPE)
    done = machine.run("--build", machine.build, "--pack", tmp_path / "packed")
    assert done.returncode == 0, done.stderr
    libraries = {path.name for path in (tmp_path / "packed/lib").iterdir()}
    assert any(name.startswith("libspdlog") for name in libraries)
    assert not any(name.startswith("libc.so") for name in libraries)
    assert os.access(tmp_path / "packed/tests/kernels/test_cuda", os.X_OK)
