"""A cluster's head and a standby of it, each of which may have the place of the other."""

import json
import shutil

import running
from running import PATIENCE_S, free_port, get


class Pair:
    """A stage, and a standby of its head with a state folder of its own."""

    def __init__(self, stage, *words):
        self.stage, self.words = stage, words
        self.port, self.http_port = free_port(), free_port()
        self.base_url = f"http://127.0.0.1:{self.http_port}"
        self.state_dir = stage.folder / "standby"
        self.state_dir.mkdir(mode=0o700)
        shutil.copy(stage.state_dir / "credentials.pem", self.state_dir)
        self.process = None
        self.start()

    def start(self):
        hub = self.stage.network.hub
        self.process = self.stage.start(
            "head", "--model", running.DEMO, "--listen", f"{hub}:{self.port}", "--port", self.http_port,
            "--standby-of", f"{hub}:{self.stage.control_port}", "--state-dir", self.state_dir,
            *self.stage.head_flags, *self.words, program=self.stage.program)  # fmt: skip

    def wait_follows(self, seconds=PATIENCE_S):
        self.stage._wait(lambda: standby_of(self.stage.base_url) == "ready", "it has it all", seconds)

    def state(self):
        return state_of(self.base_url)

    def wait_rules(self, seconds=PATIENCE_S):
        self.stage._wait(lambda: self.state() == "ready", "the standby is the head, and serves", seconds)

    @property
    def doors(self):
        return self.stage.http_port, self.http_port


def state_of(base_url):
    """None while nobody answers there."""
    try:
        return json.loads(get(base_url, "/cluster/status", 5))["cluster"]["state"]
    except OSError:
        return None


def standby_of(base_url):
    """What the head there says of its standby."""
    standby = json.loads(get(base_url, "/cluster/status"))["cluster"]["standby"]
    return standby and standby["state"]
