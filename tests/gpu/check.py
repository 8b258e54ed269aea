"""Checks the CUDA back-end on a GPU: tests/gpu/README.md. Needs Python's own library and no more."""

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "gpu")]

import planned  # noqa: E402
from steps import Check, Failed, NotMeasured, rows_of_bench, table  # noqa: E402

REPORT = ROOT / "tests" / "gpu" / "REPORT.md"
SECONDS = 590
NO_GPU = "there is no GPU: nvidia-smi is not on this machine, or finds none"

# What a back-end is checked with: programs in a build folder, the flag of workers, test cases. The
# twin shows in a few seconds that every line here runs.
INVARIANCE = ("*same bits in any batch*,*treats every row*,*neither on the rows*,"
              "*keep to themselves*,*bits that it has alone*")  # fmt: skip
# The case that says so if no kernel runs: no other would fail then.
STARTS = "--test-case=*starts with and without a driver,"
KNOWN = "*in the memory of the GPU*"
# What compute-sanitizer looks at: its tool, which of a back-end's programs, the cases. The first are
# worth most; the last may not be reached.
SANITIZED = (
    ("memcheck", "bits", "*rms_norm*,*the wire*,*windows and sinks*,*so have those of a large*"),
    ("racecheck", "bits", "*in its row*,*keep to themselves*"),
    ("memcheck", "mma", "*slices summed apart*,*attended to alone*,*device chose*"),
    ("racecheck", "mma", "*slices summed apart*"),
    ("synccheck", "bits", "*keep to themselves*"),
    ("racecheck", "bits", "*that the device chose*"),
    ("memcheck", "bits", "*that the device chose*"),
    ("initcheck", "device", "*scratch is replaced*"),
)
BACKENDS = {
    "cuda": {
        "instructions": "tests/kernels/test_cuda_instructions",
        "bits": "tests/kernels/test_cuda",
        "mma": "tests/kernels/test_cuda_mma_gpu",
        "device": "tests/kernels/test_cuda_device",
        "bench": ["tests/bench/gpu_bench"],
        "cluster": "troupe",
        "worker": "cuda",
        "known_filter": ["--test-case=" + KNOWN],
        "bits_filter": [f"--test-case-exclude={INVARIANCE},{KNOWN}"],
        "invariance_filter": [STARTS + INVARIANCE],
        "mma_filter": [],
        "tokens": 400,
    },
    "cuda-twin": {
        "instructions": "tests/kernels/test_instructions",
        "bits": "tests/kernels/test_cuda_twin",
        "mma": "tests/kernels/test_cuda_mma",
        "device": "tests/kernels/test_twin_device",
        "bench": ["tests/bench/gpu_bench_twin", "--small"],
        "cluster": "troupe-testing",
        "worker": "cuda-twin",
        "known_filter": ["--test-case=*residual_add*"],
        "bits_filter": ["--test-case=*wire rounds once*"],
        "invariance_filter": ["--test-case=*treats every row*"],
        "mma_filter": ["--test-case=*slices summed apart*"],
        "tokens": 12,
    },
}


def programs(backend):
    names = ("instructions", "bits", "mma", "device")
    return [*(backend[name] for name in names), backend["bench"][0], backend["cluster"]]


class GpuCheck(Check):
    def __init__(self, arguments):
        env = dict(os.environ)
        lib = arguments.build and arguments.build / "lib"
        if lib and lib.is_dir():
            env["LD_LIBRARY_PATH"] = f"{lib}:{env.get('LD_LIBRARY_PATH', '')}"
            os.environ["LD_LIBRARY_PATH"] = env["LD_LIBRARY_PATH"]  # of clusters
        self.twin = arguments.backend == "cuda-twin"
        super().__init__(arguments.out, arguments.seconds, env, "dry run" if self.twin else "measured")
        self.backend = BACKENDS[arguments.backend]
        self.build_folder = arguments.build
        self.expected = {}
        self.gpu = ""

    def program(self, path):
        program = self.build_folder / path if self.build_folder else None
        if program is None or not program.exists():
            raise NotMeasured(f"{path} is not built")
        return program

    # --- Steps -----------------------------------------------------------------------------------

    def machine(self):
        fields = "name,driver_version,compute_cap,memory.total,ecc.mode.current,power.limit,clocks.max.sm"
        try:
            text = self.run("nvidia-smi", ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"])
        except (NotMeasured, Failed):
            raise NotMeasured(NO_GPU) from None
        self.gpu = text.strip().splitlines()[0]
        return self.gpu

    def architecture(self):
        capability = self.gpu.split(",")[2].strip().replace(".", "")
        return capability + ("a" if capability in ("90", "100", "120") else "")

    def build(self):
        if self.build_folder:
            for path in programs(self.backend):
                if path != self.backend["cluster"]:
                    self.program(path)
            return f"taken from {self.build_folder.name}"
        folder = ROOT / "build-gpu"
        architectures = "80" if self.twin else self.architecture()
        configure = ["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
                     f"-DTROUPE_CUDA_ARCHITECTURES={architectures}",
                     f"-DTROUPE_CUDA={'AUTO' if self.twin else 'ON'}"]  # fmt: skip
        if shutil.which("ninja"):
            configure += ["-G", "Ninja"]
        alone = ""
        targets = [Path(path).name for path in programs(self.backend)]
        try:
            self.run("configure", configure)
        except Failed:  # libraries of the cluster are missing: the kernels need few
            shutil.rmtree(folder, ignore_errors=True)
            self.run("configure-kernels", [*configure, "-DTROUPE_KERNELS_ONLY=ON"])
            targets.remove(self.backend["cluster"])
            alone = ", kernels alone: libraries of the rest are not here"
        started = time.monotonic()
        self.run("build", ["cmake", "--build", folder, "-j", os.cpu_count() or 2, "--target", *targets])
        self.build_folder = folder
        return f"for sm_{architectures} in {time.monotonic() - started:.0f} s{alone}"

    def tests(self, name, program, words=(), env=None):
        text = self.run(name, [program, *words], env=env, good=(0, 1))
        counts = re.search(r"test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed", text)
        if not counts:
            raise Failed(f"it ended before its tests did; see {name}.log")
        if counts[3] != "0":
            raise Failed(f"{counts[3]} of {counts[1]} test cases; see {name}.log")
        # Some cases need no kernel: what fails is told first.
        if match := re.search(r"MESSAGE: (.*(?:no kernel runs|there is no such device))", text):
            raise NotMeasured(match[1])
        if counts[1] == "0":
            raise NotMeasured("no test case has such a name")
        return text, f"{counts[2]} test cases passed"

    def instructions(self):
        answers = self.out / "answers.txt"
        text, _ = self.tests("instructions", self.program(self.backend["instructions"]),
                             env={"TROUPE_TEST_INSTRUCTIONS": str(answers)})  # fmt: skip
        head = f"# {self.gpu or 'the twin: a claim, no answers of a GPU'}\n"
        (self.out / "instructions.txt").write_text(head + answers.read_text())
        answers.unlink()
        said = re.search(r"MESSAGE: instructions of (.*)", text)
        return f"{said[1] if said else 'answered'}; written to instructions.txt"

    def passed(self, name, program):
        return self.tests(name, self.program(self.backend[program]), self.backend[f"{name}_filter"])[1]

    def known(self):
        return self.passed("known", "bits")

    def bits(self):
        return self.passed("bits", "bits")

    def invariance(self):
        return self.passed("invariance", "bits")

    def mma(self):
        return self.passed("mma", "mma")

    def device(self):
        return self.tests("device", self.program(self.backend["device"]))[1]

    def speed(self):
        program, *words = self.backend["bench"]
        reason = None
        try:
            self.run("bench", [self.program(program), *words])
        except Failed as failed:  # rows that came before are measured
            reason = failed
        text = (self.out / "bench.log").read_text(errors="replace")
        for row in rows_of_bench(text, self.measured):
            self.add(row)
        names = []
        for numerics, file in planned.files(text, self.gpu).items():
            names.append(f"measured-{numerics}.json")
            (self.out / names[-1]).write_text(json.dumps(file, indent=1) + "\n")
        if reason:
            raise reason
        return f"for troupe plan --measured: {', '.join(names)}" if names else None

    def demo(self):
        clusters = self.clusters()
        text, self.expected = clusters.demo(self.backend["worker"], self.backend["tokens"], self.left() - 2)
        return text

    def killed(self):
        if not self.expected:
            raise NotMeasured("there are no answers to compare with: the demo was not served")
        clusters = self.clusters()
        return clusters.killed(self.backend["worker"], self.backend["tokens"], self.expected, self.left() - 2)

    def clusters(self):
        os.environ["TROUPE"] = str(self.program(self.backend["cluster"]))
        import clusters

        return clusters

    def sanitizer(self):
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        looked, missed = [], []
        for kind, of, cases in SANITIZED:
            what = f"{kind} of {of}: {cases}".replace("*", "")
            words = ["--error-exitcode", 9, "--tool", kind, self.program(self.backend[of])]
            try:
                if looked and self.left() < 5:
                    raise NotMeasured("the time was up")
                # Without a kernel all would pass: the case that says so goes along.
                self.tests(f"{kind}-{of}", tool, [*words, STARTS + cases])
                looked.append(what)
            except NotMeasured as reason:
                missed.append((what, str(reason)))
            except Failed:
                if self.left() > 1:
                    raise
                missed.append((what, "no end within its time"))
        if not looked:
            raise NotMeasured(missed[0][1])
        rest = "".join(f"; not {what} ({reason})" for what, reason in missed)
        return f"nothing found by {'; '.join(looked)}{rest}"

    def profile(self):
        tool = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
        metrics = ("gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,"
                   "sm__warps_active.avg.pct_of_peak_sustained_active")  # fmt: skip
        program, *words = self.backend["bench"]
        text = self.run("ncu", [tool, "--clock-control", "none", "--csv", "--metrics", metrics,
                                "--launch-count", 40, "--kill", "yes", self.program(program), *words],
                        good=range(-64, 256))  # fmt: skip
        if "gpu__time_duration" not in text:
            last = text.strip().splitlines()[-1:]
            raise NotMeasured(f"ncu did not get at the counters ({last}); see ncu.log")
        return "counters of 40 launches in ncu.log"

    # ---------------------------------------------------------------------------------------------

    def all(self):
        # What a step has in any case, and what it may take if those before it were faster.
        steps = (
            ("machine", 5, 20, self.machine),
            ("build", 245, 300, self.build),
            ("instructions", 15, 60, self.instructions),
            ("known questions in the GPU's memory", 10, 60, self.known),
            ("queue, graphs and memory", 15, 60, self.device),
            ("bits", 55, 120, self.bits),
            ("tensor cores: bounds and row invariance", 20, 60, self.mma),
            ("demo over HTTP", 50, 100, self.demo),
            ("killed under load", 35, 80, self.killed),
            ("row invariance", 25, 60, self.invariance),
            ("speed", 60, 180, self.speed),
            ("compute-sanitizer", 40, 120, self.sanitizer),
            ("ncu", 15, 45, self.profile),
        )
        assert sum(least for _, least, _, _ in steps) <= SECONDS
        if self.twin:
            return self.steps(steps)
        self.step("machine", 20, self.machine)
        if self.gpu:
            return self.steps(steps[1:])
        self.step_end = self.end
        for what, *_ in steps[1:]:
            self.step(what, 2, self.refuse)

    def refuse(self):
        raise NotMeasured(NO_GPU)


def commit():
    done = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h"], capture_output=True, text=True)
    return done.stdout.strip() or "no checkout"


def section(check):
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    if check.twin:
        title = f"{now}: a dry run on the twin. No figure here means anything"
    else:
        title = f"{now}: {check.gpu or 'no GPU, nothing is measured'}"
    system = f"{os.uname().sysname} {os.uname().release}"
    return f"\n## {title}\n\nCommit {commit()}, {system}.\n\n{table(check.rows)}"


def pack(build, to):
    """Programs and the libraries they need, for a machine that has neither."""
    (to / "lib").mkdir(parents=True, exist_ok=True)
    for path in programs(BACKENDS["cuda"]):
        program = build / path
        if not program.exists():
            names = " ".join(Path(path).name for path in programs(BACKENDS["cuda"]))
            sys.exit(f"check: {program} is not built; build {names}")
        (to / path).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "-o", to / path, program], check=True)
        needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for name, library in re.findall(r"(\S+) => (/\S+)", needed):
            # The C library belongs to the machine, and the driver too.
            if not re.match(r"(libc|libm|libdl|librt|libpthread|libresolv|ld-linux|libcuda)\b", name):
                shutil.copy(library, to / "lib" / name)
    size = sum(file.stat().st_size for file in to.rglob("*") if file.is_file())
    print(f"{to}: {size >> 20} MiB; there: tools/gpu/check --build {to}")


def parse(words):
    p = argparse.ArgumentParser(prog="tools/gpu/check", description=__doc__)
    p.add_argument("--out", type=Path, default=ROOT / "build-gpu-out", help="folder of raw outputs")
    p.add_argument("--report", type=Path, default=REPORT, help="what a measured section is appended to")
    p.add_argument("--build", type=Path, help="a folder where the programs are built, or packed")
    p.add_argument("--backend", choices=BACKENDS, default="cuda", help="cuda-twin: a dry run, on no GPU")
    p.add_argument("--seconds", type=float, default=SECONDS, help=f"at most {SECONDS}")
    p.add_argument("--pack", type=Path, metavar="DIR", help="only copies --build's programs, to carry")
    arguments = p.parse_args(words)
    arguments.seconds = min(arguments.seconds, SECONDS)
    for name in ("out", "build", "report", "pack"):
        if getattr(arguments, name):
            setattr(arguments, name, getattr(arguments, name).resolve())
    return arguments


def main(words):
    arguments = parse(words)
    if arguments.pack:
        return pack(arguments.build or ROOT / "build", arguments.pack)
    arguments.out.mkdir(parents=True, exist_ok=True)
    check = GpuCheck(arguments)
    check.all()
    text = section(check)
    (arguments.out / "REPORT.md").write_text(text)
    # Only what a GPU did is written down for others.
    if check.gpu and not check.twin:
        with open(arguments.report, "a") as report:
            report.write(text)
    failed = [row.what for row in check.rows if row.result == "failed"]
    print(f"{arguments.out}/REPORT.md: {len(check.rows)} rows, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
