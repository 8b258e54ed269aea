"""What a service manager (systemd, Type=notify) hears of a head and of a worker."""

import contextlib
import shutil
import socket
import time
import uuid

import pytest

from running import DEMO, PATIENCE_S, wait_until


class Manager:
    """The socket that $NOTIFY_SOCKET names, and what came in through it."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)
        self.env = {"NOTIFY_SOCKET": address.replace("\0", "@")}
        self.heard = []

    def hear(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.heard.append(self.socket.recv(4096).decode())
        return self.heard

    def wait(self, word, seconds=PATIENCE_S):
        heard = lambda: any(word in message for message in self.hear())  # noqa: E731
        wait_until(heard, f"{word} of {self.heard}", seconds)

    def count(self, word):
        return self.hear().count(word)

    def more(self, word, seconds=PATIENCE_S):
        """Waits for another one."""
        before = self.count(word)
        wait_until(lambda: self.count(word) > before, f"another {word}", seconds)


@pytest.fixture
def managers(tmp_path):
    """One whose socket is a file, and one whose socket is abstract."""
    found = Manager(str(tmp_path / "notify")), Manager(f"\0troupe-{uuid.uuid4().hex}")
    yield found
    for manager in found:
        manager.socket.close()


def test_head_and_worker_tell_when_they_are_ready_alive_and_ending(cluster, managers):
    of_head, of_worker = managers
    watched = {"WATCHDOG_USEC": "600000"}
    head_words = ["head", "--model", DEMO, "--listen", f"127.0.0.1:{cluster.control_port}",
                  "--port", cluster.http_port]
    head = cluster.start(*head_words, env={**of_head.env, **watched})
    of_head.wait("STATUS=forming with 0 devices")
    of_head.wait("WATCHDOG=1")
    assert not of_head.count("READY=1")  # it does not serve yet
    shutil.copytree(cluster.state_dir, cluster.folder / "other")
    worker = cluster.start("worker", "--head", f"127.0.0.1:{cluster.control_port}", "--threads", 1,
                           "--state-dir", cluster.folder / "other", env={**of_worker.env, **watched})
    of_worker.wait("READY=1")
    of_worker.wait("STATUS=node-1 of the cluster at 127.0.0.1:")
    of_head.wait("READY=1")
    of_head.wait("STATUS=ready with 1 device")
    head.kill()
    head.exit_code()
    of_worker.wait("STATUS=seeks the head at 127.0.0.1:")
    of_worker.more("WATCHDOG=1")  # without a head it is well
    head = cluster.start(*head_words, env=of_head.env)  # no watchdog this time
    cluster.wait_ready()
    wait_until(lambda: of_head.count("READY=1") == 2, "the next head is ready, too")
    alive = of_head.count("WATCHDOG=1")
    worker.kill(15)
    assert worker.exit_code() == 0
    of_worker.wait("STOPPING=1")
    assert of_worker.heard[-1] == "STOPPING=1" and of_worker.count("READY=1") == 1
    of_head.wait("STATUS=degraded: ")
    head.kill(15)
    assert head.exit_code() == 0
    of_head.wait("STOPPING=1")
    assert of_head.heard[-1] == "STOPPING=1" and of_head.count("WATCHDOG=1") == alive


@pytest.mark.parametrize(
    "env",
    [{"NOTIFY_SOCKET": "notify"}, {"NOTIFY_SOCKET": "/" + "x" * 200}, {"NOTIFY_SOCKET": "/nobody/there"},
     {"NOTIFY_SOCKET": "@nobody", "WATCHDOG_USEC": "-1"},
     {"NOTIFY_SOCKET": "@nobody", "WATCHDOG_USEC": "1"}],
    ids=["relative", "long", "nobody", "negative", "microsecond"],
)
def test_a_manager_that_cannot_be_told_does_no_harm(cluster, env):
    head = cluster.start("head", "--model", DEMO, "--listen", f"127.0.0.1:{cluster.control_port}",
                         "--port", cluster.http_port, env=env)
    cluster.wait_answers()
    head.kill(15)
    assert head.exit_code() == 0


def test_the_watchdog_of_another_process_is_not_fed(cluster, managers):
    manager, _ = managers
    env = {**manager.env, "WATCHDOG_USEC": "60000", "WATCHDOG_PID": "1"}
    head = cluster.start("head", "--model", DEMO, "--listen", "127.0.0.1:0", "--port", 0, env=env)
    manager.wait("STATUS=")
    time.sleep(0.3)
    head.kill(15)
    assert head.exit_code() == 0
    manager.wait("STOPPING=1")
    assert not manager.count("WATCHDOG=1")
