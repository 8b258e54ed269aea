"""The files of configs/: each command line has flags that exist, and they do what they are for."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess

import pytest

from running import DEMO, ROOT, Cluster, run, wait_until

CONFIGS = ROOT / "configs"
DEPLOY = CONFIGS / "deploy"
FILES = sorted(path for path in CONFIGS.rglob("*") if path.is_file() and path.suffix != ".json")
# A command of its own in a shell, in a comment, in a unit; or a list of YAML.
IN_A_SHELL = re.compile(r"(?:^|[\s`'/(])troupe ([a-z][^`'#&|>)]*)")
IN_A_LIST = re.compile(r"\[(?:CMD, )?(?:troupe, )?(\w[^\]]*)\]")  # perhaps after an image's `troupe`


def command_lines(text):
    """The words after `troupe` of each command line of a file."""
    text = text.replace("\\\n", " ")
    for line in text.splitlines():
        for found in IN_A_SHELL.finditer(line):
            yield found[1].split()
    for found in IN_A_LIST.finditer(text):
        yield [word.strip().strip('"') for word in found[1].split(",")]


def commands():
    """Every command and its subcommands, with its help."""
    helps = {}

    def add(words):
        text = run("help", *words).stdout
        helps[tuple(words)] = text
        below = text.partition("Subcommands:\n")[2].partition("\n\n")[0]
        for name in re.findall(r"^  (\w[\w-]*) ", below, re.MULTILINE):
            add([*words, name])

    add([])
    return helps


def unknown_flags(words, helps):
    depth = max(n for n in range(3) if tuple(words[:n]) in helps)
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    known = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", helps[tuple(words[:depth])]))
    return [flag for flag in flags if flag not in known]


@pytest.fixture(scope="module")
def helps(troupe):
    return commands()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_flags_of_every_command_line_exist(path, helps):
    found = [words for words in command_lines(path.read_text()) if tuple(words[:1]) in helps]
    for words in found:
        assert not unknown_flags(words, helps), f"{path.name}: troupe {' '.join(words)}"
    if DEPLOY in path.parents and path.name not in ("Containerfile", "kustomization.yaml"):
        assert found, "no command line was found"


def test_a_flag_that_does_not_exist_is_noticed(helps):
    lines = list(command_lines('command: [troupe, head, --modle, "2"]\nExec=/usr/bin/troupe drain --hree %d\n'
                               "# troupe bench serve \\\n  --num-promts 3 && troupe stop --now\n"))
    assert len(lines) == 4, lines
    assert all(len(unknown_flags(words, helps)) == 1 for words in lines)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_takes_the_units(troupe, tmp_path):
    for unit in (DEPLOY / "systemd").glob("*.service"):
        (tmp_path / unit.name).write_text(unit.read_text().replace("/usr/bin/troupe", str(troupe)))
    done = subprocess.run(["systemd-analyze", "verify", *tmp_path.iterdir()], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def before_a_start(unit, given, state):
    """What the unit does before its program starts, with these in place of systemd's folders."""
    text = (DEPLOY / "systemd" / unit).read_text()
    for line in re.findall(r"^ExecStartPre=(.*)$", text, re.MULTILINE):
        words = shlex.split(line.replace("%d", str(given)).replace("%S", str(state)))
        subprocess.run(words, check=True, capture_output=True)


def test_a_renewed_certificate_survives_a_restart_of_the_unit(tmp_path):
    given, state = tmp_path / "credentials", tmp_path / "state"
    given.mkdir()
    (state / "troupe-worker").mkdir(parents=True)
    join = state / "troupe-worker" / "join"
    start = lambda: before_a_start("troupe-worker.service", given, state)  # noqa: E731
    (given / "join").write_text("first")
    join.symlink_to(given / "join")  # as units of earlier versions left it
    start()
    assert join.read_text() == "first" and not join.is_symlink() and join.stat().st_mode & 0o777 == 0o600
    (join.parent / "renewed").write_text("renewed")
    (join.parent / "renewed").rename(join)  # as the worker does
    start()
    assert join.read_text() == "renewed"
    (given / "join").write_text("another")
    start()
    assert join.read_text() == "another"
    join.unlink()
    start()
    assert join.read_text() == "another"


def test_the_slurm_job_serves_and_ends_in_order(troupe, tmp_path):
    """With stand-ins for Slurm, both tasks on this machine."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "scontrol").write_text("#!/bin/bash\nprintf '127.0.0.1\\nanother\\n'\n")
    (bin_folder / "srun").write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n')
    for stand_in in bin_folder.iterdir():
        stand_in.chmod(0o755)
    (bin_folder / "troupe").symlink_to(troupe)
    with Cluster() as cluster:
        env = {**cluster.env, "PATH": f"{bin_folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7",
               "SLURM_JOB_NODELIST": "nodes[1-2]", "SLURM_JOB_NUM_NODES": "1",
               "TROUPE_CONTROL_PORT": str(cluster.control_port)}
        with open(cluster.folder / "job.log", "w") as log:
            job = subprocess.Popen(["bash", DEPLOY / "slurm" / "troupe.sbatch", DEMO, "--port",
                                    str(cluster.http_port)], cwd=tmp_path, env=env, stdout=log, stderr=log)
        try:
            said = (cluster.folder / "job.log").read_text
            wait_until(lambda: cluster.state() == "ready" or job.poll() is not None, "the job serves")
            assert job.poll() is None, said()
            assert len(cluster.ready_nodes()) == 1, said()
            assert (tmp_path / "troupe-7").stat().st_mode & 0o77 == 0  # keys are in it
            job.terminate()
            assert job.wait(60) == 0, said()
        finally:
            job.kill()
            job.wait()
        wait_until(lambda: not cluster.pids(), "nothing of the job is left")


def test_drain_here_takes_the_node_of_that_state_folder(troupe):
    """As a pod does before it stops: it knows its state folder, and not which node it is."""
    with Cluster() as cluster:
        cluster.head(DEMO, "--min-devices", 2)
        cluster.wait_answers()
        other = cluster.folder / "other"
        other.mkdir()
        shutil.copy(cluster.state_dir / "join", other / "join")
        stays = cluster.worker()
        goes = cluster.worker("--state-dir", other)
        cluster.wait_ready()
        (entry,) = (other / "workers").iterdir()
        assert entry.name == f"{socket.gethostname()}.{goes.pid}"
        wait_until(entry.read_text, "it knows its node")
        (node,) = [n["id"] for n in cluster.status()["nodes"] if n["pid"] == goes.pid]
        done = run("drain", "--here", "--state-dir", other)
        assert done.returncode == 0 and f"{node} has left" in done.stderr, done.stderr
        assert goes.exit_code() == 0 and stays.popen.poll() is None
        done = run("drain", "--here", "--state-dir", other)
        assert done.returncode == 1 and "No worker of this machine" in done.stderr, done.stderr
        done = run("drain", "--here", node, "--state-dir", other)
        assert done.returncode == 2 and "NODE or --here" in done.stderr, done.stderr


def test_status_here_tells_who_hangs(troupe):
    """As a pod's probe asks it, with a head or without one."""
    with Cluster() as cluster:
        here = lambda: run("status", "--here", "--state-dir", cluster.state_dir)  # noqa: E731
        head = cluster.head(DEMO, "--min-devices", 1)
        cluster.wait_answers()
        done = here()
        assert done.returncode == 0 and done.stdout == "The head answers.\n", done
        worker = cluster.worker()
        cluster.wait_ready()
        done = here()
        well = f"The head answers.\nnode-1 (process {worker.pid}) is well.\n"
        assert done.returncode == 0 and done.stdout == well, done
        head.kill(signal.SIGSTOP)
        assert here().returncode == 1
        head.kill()
        worker.wait_log("Waiting for the head")
        assert here().returncode == 0, "it seeks its head, and is well"
        worker.kill(signal.SIGSTOP)
        done = here()
        assert done.returncode == 1 and f"process {worker.pid} has taken no turn" in done.stderr, done.stderr
        worker.kill(signal.SIGCONT)
        assert here().returncode == 0
        worker.kill()
        worker.popen.wait()
        done = here()
        assert done.returncode == 1 and "Neither a head" in done.stderr, done.stderr
        assert run("status", "--here", "--json").returncode == 2
