"""Programs that embed Troupe: the example, and one outside the tree with an installed package."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import textwrap
import threading
from pathlib import Path

import pytest

from running import DEMO, ROOT, TROUPE, run

BUILD = TROUPE.parent
EXAMPLE = BUILD / "tests" / "embedding" / "embedding_example"

BRANDY = "brandy (noun): distilled from wine or fermented fruit juice."
RIVER = "river (noun): a large natural stream of water (larger than a creek)."
GARDEN = "garden (noun): a plot of ground where plants are cultivated."


def check_tour(output):
    """What the example says, whichever cluster it talks to."""
    assert "blocking: 11 prompt tokens, 37 tokens, stop: brandy: a noun" in output
    assert BRANDY in output
    streamed = output[output.index("streamed: in ") :]
    assert int(streamed.split()[2]) > 10, "the answer came in pieces"
    assert RIVER in streamed
    assert GARDEN in output[output.index("actor: ") :]
    assert "refused: " in output and "temperature" in output
    status = next(line for line in output.splitlines() if line.startswith("status: "))
    assert json.loads(status.removeprefix("status: "))["cluster"]["state"] == "ready"


def example(*words):
    return subprocess.run(
        [EXAMPLE, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


def test_a_cluster_within_the_program():
    done = example("start", DEMO)
    assert done.returncode == 0, done.stderr
    check_tour(done.stdout)
    assert "event: stopping: " in done.stdout
    assert done.stdout.endswith("done\n")


def test_what_cannot_be_opened_is_an_error():
    for mode in ("start", "connect"):
        done = example(mode, "/nowhere")
        assert done.returncode == 1
        assert "/nowhere" in done.stderr


@contextlib.contextmanager
def running_example(*words):
    """The example, and a function that reads its lines up to one."""
    with subprocess.Popen(
        [EXAMPLE, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        lines = []
        # A wait that never ends ends with the program.
        deadline = threading.Timer(120, program.kill)
        deadline.start()

        def read_until(start):
            while not lines or not lines[-1].startswith(start):
                lines.append(program.stdout.readline())
                assert lines[-1], "the program ended: " + "".join(lines)
            return "".join(lines)

        try:
            yield program, read_until
        finally:
            deadline.cancel()
            program.kill()


def connected(cluster):
    return running_example("connect", cluster.state_dir / "join")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGSEGV])
def test_a_program_keeps_its_own_signals(number):
    with running_example("start", DEMO) as (program, read_until):
        read_until("status: ")
        lines = Path(f"/proc/{program.pid}/status").read_text().splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt:"))
        # What glibc uses for threads of its own is above 31.
        assert int(caught.split()[1], 16) & 0x7FFF_FFFF == 0, "a library handles signals"
        program.send_signal(number)
        assert program.wait(timeout=60) == -number


def test_a_client_of_a_running_cluster(cluster):
    cluster.up(DEMO)
    with connected(cluster) as (program, read_until):
        check_tour(read_until("status: "))
        os.kill(cluster.ready_nodes()[0]["pid"], signal.SIGKILL)
        read_until("event: node_lost: ")
        read_until("event: recovered: ")
        program.stdin.close()
        read_until("done")
        assert program.wait(timeout=60) == 0


def test_a_client_outlives_its_cluster(cluster):
    cluster.up(DEMO)
    with connected(cluster) as (program, read_until):
        read_until("status: ")
        cluster.stop()
        read_until("event: stopping: ")
        program.stdin.close()
        read_until("done")
        assert program.wait(timeout=60) == 0


@pytest.mark.parametrize(
    "command, words, complaint",
    [
        ("up", ["--block-size", "0"], "--block-size must be"),
        ("head", ["--block-size", "0"], "--block-size must be"),
        ("worker", [], "There is no join file"),
    ],
)
def test_the_example_configurations_are_understood(command, words, complaint, tmp_path):
    # The file is read first: what is wrong in it would be the complaint. Then comes what stops it.
    env = {"TROUPE_STATE_DIR": str(tmp_path)}
    done = run(command, "--config", ROOT / "configs" / f"{command}.toml", *words, env=env)
    assert done.returncode != 0
    assert complaint in done.stderr


def readme_program():
    """The C++ program that the README shows."""
    text = (ROOT / "README.md").read_text().split("## As a library")[1]
    program = re.search(r"(?:^    .*\n|^\n)+", text[text.index("    #include") :], re.MULTILINE)[0]
    return textwrap.dedent(program)


def test_outside_the_tree(tmp_path):
    prefix, build = tmp_path / "prefix", tmp_path / "build"

    def call(*words):
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call("cmake", "--install", BUILD, "--prefix", prefix)
    assert call(prefix / "bin" / "troupe", "--version").strip()
    source = tmp_path / "source"
    shutil.copytree(ROOT / "tests" / "embedding" / "outside", source)
    (source / "readme.cpp").write_text(readme_program())
    call("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", build)
    answer = call(build / "outside", DEMO, "What is brandy?")
    assert answer.startswith("brandy: a noun"), "standard output is the program's"
    assert answer.endswith(BRANDY + "\n")
    # The program of the README, from a folder where the demo is not.
    done = subprocess.run([build / "readme"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "pocket-dictionary" in done.stderr and not done.stdout
    assert BRANDY in call(build / "readme", DEMO)
