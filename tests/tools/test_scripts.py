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
        self.env = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "CALLS": str(self.calls_file)}
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


def test_a_build_that_fails_does_not_keep_the_last_line(machine, tmp_path):
    """tools/test in a tree of its own, where everything passes but the sanitizers do not build."""
    root = tmp_path / "tree"
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("demo", "troupe"))
    (root / "tests").mkdir()
    (root / "tests" / "requirements.txt").write_text("pytest\n")
    (root / "CMakePresets.json").write_text("{}")
    python = root / "build" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    report = '<testsuite><testcase name="a" status="run" time="4.2"/></testsuite>'
    skipped = '<testcase name="b" time="0"><skipped message="no such kernel"/></testcase></testsuite>'
    python.write_text(
        "#!/bin/bash\n"
        f"[[ $1 == -m ]] && echo '{report[:-12]}{skipped}' >'{root}/build/results/pytest.xml' && exit\n"
        f"exec '{sys.executable}' \"$@\"\n"
    )
    python.chmod(0o755)
    (root / "build" / "venv" / "installed.txt").write_text("pytest\n")
    machine.stand_in("cmake", '[[ "$*" != *asan* ]]')
    junit = 'while (($#)); do [[ $1 == --output-junit ]] && out=$2; shift; done\n'
    machine.stand_in("ctest", f"{junit}echo '{report}' >\"$out\"")
    machine.stand_in("setarch", 'shift 2; exec "$@"')
    done = machine.run(root / "tools" / "test")
    lines = done.stdout.splitlines()
    assert lines[-1] == "3 passed, 1 failed", (done.stdout, done.stderr)
    assert "asan: 0 passed, 1 failed" in lines and "tsan: 1 passed, 0 failed" in lines
    assert done.returncode == 1
    assert lines[-3:-1] == ["1 skipped:", "  1: no such kernel"]
    done = machine.run(root / "tools" / "test", "--fast", "--times")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "2 passed, 0 failed"
    assert any("s  building build" in line for line in lines) and "     4 s  a" in lines, lines


def test_calls_of_stand_ins_are_seen(machine):
    machine.installed("rc")
    assert lib(machine, "install_packages").returncode == 1
    assert any(call.startswith("sudo") for call in machine.calls())
    assert Path(machine.bin / "sudo").exists()
