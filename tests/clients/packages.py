"""What these tests need from PyPI, in an environment of its own: versions of clients exclude each other."""

import shutil
import subprocess
import sys
from pathlib import Path

from running import ROOT, locked

HERE = Path(__file__).resolve().parent
VENV = ROOT / "build" / "venv-clients"
PYTHON = VENV / "bin" / "python"
LISTS = {HERE / "requirements.txt": [], HERE / "data-requirements.txt": ["--no-deps"]}
# What pip says where nothing answers; anything else that it complains of is a fault of the lists.
UNREACHABLE = ["connection", "timed out", "name resolution", "from versions: none", "no route to host"]


class Unreachable(Exception):
    """Nobody gives out packages here."""


def installed():
    """Makes the environment, unless it is there as the lists have it; its interpreter."""
    with locked(VENV.with_suffix(".lock")):
        return made()


def made():
    wanted = "".join(path.read_text() for path in LISTS)
    note = VENV / "installed.txt"
    if note.exists() and note.read_text() == wanted:
        return PYTHON
    shutil.rmtree(VENV, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True, stdout=subprocess.DEVNULL, timeout=120)
    for path, words in LISTS.items():
        command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
        done = subprocess.run([*command, *words, "--requirement", path], capture_output=True, text=True,
                              timeout=600)  # fmt: skip
        if done.returncode == 0:
            continue
        if any(sign in done.stderr.lower() for sign in UNREACHABLE):
            raise Unreachable(done.stderr.strip().splitlines()[-1])
        raise AssertionError(f"{path.name} cannot be installed:\n{done.stderr}")
    note.write_text(wanted)
    return PYTHON


def folder(name):
    """Where the environment has a package."""
    return next(VENV.glob(f"lib/python*/site-packages/{name}"))
