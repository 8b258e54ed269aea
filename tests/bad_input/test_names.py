"""Names that cannot travel to the workers, or stand in metrics, are wrong usage."""

import os
import shutil
import subprocess

import pytest

from running import DEMO, TROUPE

NO_UTF8 = b"mod\xe9l"


def start(command, tmp_path, *words, cwd=None):
    network = ["--port", "0", "--listen", "127.0.0.1:0"] if command != "generate" else ["--prompt", "a"]
    words = [TROUPE, command, *network, "--state-dir", tmp_path / "state", *words]
    return subprocess.run(
        [os.fsencode(word) for word in words], capture_output=True, timeout=60, cwd=cwd,
    )  # fmt: skip


def refused(done, flag):
    last = done.stderr.decode().splitlines()[-1]
    assert done.returncode == 2, done.stderr
    assert last.startswith(f"troupe: {flag} ") and last.endswith(".")
    assert not done.stdout


@pytest.mark.parametrize("command", ["up", "head", "generate"])
@pytest.mark.parametrize("name", [NO_UTF8, b"x" * 4097], ids=["no UTF-8", "long"])
def test_a_model_name_that_cannot_be_used(troupe, tmp_path, command, name):
    refused(start(command, tmp_path, "--model", DEMO, "--served-model-name", name), "--served-model-name")


@pytest.mark.parametrize("command", ["up", "head", "generate"])
def test_a_path_that_is_not_utf8(troupe, tmp_path, command):
    folder = os.fsencode(tmp_path) + b"/" + NO_UTF8
    shutil.copytree(os.fsencode(DEMO), folder)
    refused(start(command, tmp_path, "--model", folder), "--model")
    refused(start(command, tmp_path, "--model", ".", cwd=folder), "--model")


def test_a_path_that_is_too_long(troupe, tmp_path):
    refused(start("head", tmp_path, "--model", "a/" * 2100), "--model")


def test_names_of_other_languages_are_fine(troupe, tmp_path):
    folder = tmp_path / "modèle 模型"
    shutil.copytree(DEMO, folder)
    name = ["--served-model-name", "Привет"]
    done = start("generate", tmp_path, "--model", folder, *name, "--max-tokens", "1")
    assert done.returncode == 0, done.stderr
