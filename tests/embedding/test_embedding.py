"""Programs that embed Troupe: the example, and one outside the tree with an installed package."""

import contextlib
import json
import os
import signal
import subprocess
import threading

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
    return subprocess.run([EXAMPLE, *words], capture_output=True, text=True, timeout=60)


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
def connected(cluster):
    """The example as a client of a cluster, and a function that reads its lines up to one."""
    words = [EXAMPLE, "connect", cluster.state_dir / "join"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=cluster.env
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


def test_a_client_of_a_running_cluster(cluster):
    cluster.up(DEMO)
    with connected(cluster) as (program, read_until):
        check_tour(read_until("status: "))
        os.kill(cluster.ready_nodes()[0]["pid"], signal.SIGKILL)
        read_until("event: node_lost: ")
        read_until("event: recovered: ")
        program.stdin.close()
        read_until("done")
        assert program.wait(timeout=20) == 0


def test_a_client_outlives_its_cluster(cluster):
    cluster.up(DEMO)
    with connected(cluster) as (program, read_until):
        read_until("status: ")
        cluster.stop()
        read_until("event: stopping: ")
        program.stdin.close()
        read_until("done")
        assert program.wait(timeout=20) == 0


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


def test_outside_the_tree(tmp_path):
    prefix, build = tmp_path / "prefix", tmp_path / "build"

    def call(*words):
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call("cmake", "--install", BUILD, "--prefix", prefix)
    assert call(prefix / "bin" / "troupe", "--version").strip()
    source = ROOT / "tests" / "embedding" / "outside"
    call("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", build)
    assert BRANDY in call(build / "outside", DEMO, "What is brandy?")
