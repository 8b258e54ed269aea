"""The head comes back in another world: with other flags, without room on its disk, with a state folder that
is older than its workers know. What it had accepted goes on, and newcomers get what holds now."""

import http.client
import json
import shutil
import subprocess

import pytest

from recovery import LASTING, SMALL, event_after
from running import PATIENCE_S, get, post, wait_until
from test_head_dies import WHOLE, Asker, askers, assert_answered, kill_head

FLAGS = [*SMALL, "--min-devices", 2]
LESS = 256  # tokens


def test_flags_that_would_not_take_them_now(stages, expected):
    """A smaller --max-model-len, and another name of the model."""
    stage = stages(*FLAGS)
    name = json.loads(get(stage.base_url, "/v1/models"))["data"][0]["id"]
    named = [{**request, "body": {**request["body"], "model": name}}
             for request in [*LASTING[:3], *WHOLE[:3]]]  # fmt: skip
    assert LASTING[0]["body"]["max_tokens"] > LESS
    asked = askers(stage, named, "flags", 12)
    wait_until(lambda: sum(asker.tokens > 3 for asker in asked) >= 3, "tokens come")
    stage.head_flags = [*FLAGS, "--max-model-len", LESS, "--served-model-name", "another"]
    kill_head(stage, 0.1)
    assert_answered(stage, asked, expected)
    # A longest one had begun, and was not at its end.
    assert f"get the {LESS} of --max-model-len" in str(stage.status()["events"])
    again = [Asker(stage, asker.request, asker.name) for asker in asked]
    assert_answered(stage, again, expected)
    assert [asker.id for asker in again] == [asker.id for asker in asked]
    status, answer = post(stage.base_url, "/v1/completions", {"model": name, "prompt": "ab", "max_tokens": 2})
    assert status == 404 and "another" in answer["error"]["message"], answer
    status, answer = post(stage.base_url, "/v1/completions", {"prompt": "ab", "max_tokens": LESS})
    assert status == 400 and f"the context holds {LESS}" in answer["error"]["message"], answer


def test_an_answer_that_would_be_too_large_now(stages):
    """Where a chat may become longer, so many choices are not taken."""
    stage = stages(*FLAGS, "--max-model-len", LESS // 2)
    chat = {"messages": [{"role": "user", "content": "What is a river?"}], "n": 60, "logprobs": True,
            "top_logprobs": 20, "temperature": 1, "seed": 3}  # fmt: skip

    def ask(key):
        connection = http.client.HTTPConnection("127.0.0.1", stage.http_port, timeout=PATIENCE_S)
        connection.request("POST", "/v1/chat/completions", json.dumps(chat),
                           {"Content-Type": "application/json", "Idempotency-Key": key})  # fmt: skip
        answer = connection.getresponse()
        return answer.status, {**json.loads(answer.read()), "usage": None}

    before = ask("few")
    assert before[0] == 200
    stage.head_flags = [*FLAGS, "--served-model-name", "another"]
    kill_head(stage, 0)
    stage.wait_ready()
    assert ask("few") == before
    assert before[1]["model"] != "another"
    status, answer = ask("more")
    assert status == 400 and "60 choices" in answer["error"]["message"], answer


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("nothing may be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_without_room(stages, small_disk, expected):
    stage = stages(*FLAGS, workers=0)
    stage.head_process.kill()
    stage.head_process.popen.wait()
    before = stage.state_dir
    shutil.copytree(before, small_disk / "state")
    stage.state_dir = small_disk / "state"
    stage.env["TROUPE_STATE_DIR"] = str(stage.state_dir)
    stage.start_head()
    for _ in range(2):
        stage.add_worker()
    stage.wait_ready()
    asked = askers(stage, LASTING, "room", 4)
    wait_until(lambda: all(asker.tokens > 3 for asker in asked), "tokens come")
    with open(small_disk / "of-somebody-else", "wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(bytes(512))
    for _ in range(3):
        kill_head(stage, 0.1)
        wait_until(lambda: all(asker.tokens > 3 for asker in asked), "they go on")
    assert_answered(stage, asked, expected)
    stage._wait(lambda: post(stage.base_url, "/v1/completions", {"prompt": "ab"})[0] == 503, "it says so")
    (small_disk / "of-somebody-else").unlink()
    stage._wait(lambda: post(stage.base_url, "/v1/completions", {"prompt": "ab"})[0] == 200, "there is room")


def test_a_state_folder_that_is_older_than_its_workers_know(stages):
    stage = stages(*FLAGS)
    stage.head_process.kill()
    stage.head_process.popen.wait()
    older = stage.folder / "older"
    shutil.copytree(stage.state_dir, older)
    for _ in range(2):
        stage.start_head()
        stage.wait_ready()
        stage.head_process.kill()
        stage.head_process.popen.wait()
    shutil.rmtree(stage.state_dir)
    shutil.copytree(older, stage.state_dir)
    stage.start_head()

    event_after(stage, "refused", None, "follows a newer head")
    for worker in list(stage.workers):
        worker.kill()
        stage.add_worker()
    stage.wait_ready()
