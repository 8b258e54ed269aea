"""A head that finds its journal damaged, or not its own: it says so, gives no wrong token, and whoever asks
for a request hears what became of it."""

import json
import re
import shutil
import urllib.error

import pytest

from running import DEMO, V2_LITE, Cluster, get, wait_until

SMALL = ["--kv-cache-memory", "128MiB"]


def found(cluster, name):
    """What the head says of a request: its answer, or its error's message."""
    try:
        told = json.loads(get(cluster.base_url, f"/v1/requests/{name}"))
    except urllib.error.HTTPError as error:
        assert error.code == 404
        told = json.load(error)
    return told["error"]["message"] if "error" in told else told


@pytest.fixture(scope="module")
def left(troupe, tmp_path_factory):
    """A state folder whose head was killed; its requests' answers by their names; and those that had not
    ended."""
    folder = tmp_path_factory.mktemp("left") / "state"
    with Cluster() as cluster:
        up = cluster.head(DEMO, *SMALL)
        cluster.wait_joinable()
        cluster.worker()
        cluster.wait_ready()
        answers = {}
        for i in range(6):
            body = {"prompt": [5 + i, 9], "max_tokens": 20, "seed": i, "ignore_eos": True,
                    "return_token_ids": True, "logprobs": 1}  # fmt: skip
            status, answer = cluster.post("/v1/completions", body)
            assert status == 200, answer
            answers[answer["id"]] = told = found(cluster, answer["id"])
            assert told["created"] == answer["created"]
        up.kill()
        up.popen.wait()
        shutil.copytree(cluster.state_dir, folder)
    (log,) = (folder / "journal").glob("*.log")
    return folder, log.name, answers


@pytest.fixture
def head_on(left):
    """Gives a function: a head on a copy of that folder, once something was done to it."""
    with Cluster() as cluster:

        def start(harm, model=DEMO):
            shutil.copytree(left[0], cluster.state_dir)
            (cluster.state_dir / "join").unlink()
            harm(cluster.state_dir / "journal" / left[1])
            process = cluster.head(model, *SMALL)
            wait_until(lambda: process.popen.poll() is not None or cluster.status_or_none(), "it has begun")
            return cluster, process

        yield start


def flip(*places):
    def harm(data):
        for at in places:
            data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]
        return data

    return harm


SAID_OF_LOST = r"damaged when it was started|There is no request"
# What happens to the file, what the log says then, and what may be said of requests that are lost.
HARMS = {
    "untouched": (lambda data: data, None, None),
    "torn": (lambda data: data[:-13], "was cut off within a record: its last", None),
    "cut in half": (lambda data: data[: len(data) // 2], "was cut off within", "There is no request"),
    "a byte in the middle": (lambda data: flip(len(data) // 2)(data), "is damaged: ", SAID_OF_LOST),
    "a byte of a heading": (flip(20), None, None),
    "both headings": (flip(20, 532), "does not say of which model it is any more",
                      "damaged where it says of which model"),
    "a hole": (lambda data: data[:2000] + bytes(800) + data[2800:], "is damaged: ", SAID_OF_LOST),
    "empty": (lambda data: b"", None, "There is no request"),
    "foreign": (lambda data: b"\x7fELF" + bytes(range(256)) * 40, "is damaged: ", "There is no request"),
    # Behind such a line nothing is a frame.
    "the line of version 1": (lambda data: b"troupe-journal-1 model\n" + data[1024:],
                              "was cut off within", "There is no request"),
}  # fmt: skip


@pytest.mark.parametrize("harm, note, lost", HARMS.values(), ids=HARMS)
def test_a_damaged_journal(head_on, left, harm, note, lost):
    cluster, process = head_on(lambda log: log.write_bytes(harm(log.read_bytes())))
    assert process.popen.poll() is None, process.log()
    answers = left[2]
    for name, answer in answers.items():
        told = found(cluster, name)
        if isinstance(told, dict) and told["status"] != "finished":
            # It goes on when a worker comes; what is there of it is its beginning.
            said, whole = (a["choices"][0]["token_ids"] for a in (told, answer))
            assert said == whole[: len(said)]
            continue
        assert told == answer or (lost and re.search(lost, told)), told
    if note:
        assert note in process.log(), process.log()
    else:
        assert "warn" not in process.log(), process.log()


@pytest.mark.parametrize("what", ["cluster", "model"])
def test_a_journal_of_another(head_on, left, what):
    def harm(log):
        if what == "cluster":
            (log.parent.parent / "cluster-id").write_text("another\n")

    cluster, _ = head_on(harm, model=V2_LITE if what == "model" else DEMO)
    told = "was of another cluster" if what == "cluster" else "was started again with another model"
    for name in left[2]:
        assert told in found(cluster, name)
