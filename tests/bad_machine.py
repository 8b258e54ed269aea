"""A program on a machine whose clock or disk is not well, while a test wants it so (bad_machine.c)."""

import errno
import functools
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

WELL, WRITE, SYNC, HANG, CHANGE, LOCK = 0, 1, 2, 4, 8, 16
# What may be wrong with a disk: which calls fail, how.
DISKS = {
    "full": (WRITE, errno.ENOSPC),
    "fails to write": (WRITE, errno.EIO),
    "fails to sync": (SYNC, errno.EIO),
    "is read-only": (WRITE | CHANGE, errno.EROFS),
    "is a share that is gone": (WRITE | SYNC | CHANGE, errno.ESTALE),
    "hangs": (HANG, 0),
    "has no locks": (LOCK, errno.ENOLCK),
}
STATE = struct.Struct("qiiii")


@functools.cache
def library():
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    path = Path(tempfile.mkdtemp(prefix="troupe-bad-machine-")) / "bad_machine.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, source, "-ldl"], check=True)
    return path


class BadMachine:
    """Programs that are started with `env` are on it, with their files below `folder`."""

    def __init__(self, state_file, folder):
        state_file.write_bytes(bytes(STATE.size))
        with open(state_file, "r+b") as file:
            self.state = mmap.mmap(file.fileno(), STATE.size)
        self.clock_s = 0
        self.disk = (WELL, 0, 0)
        self.env = {"LD_PRELOAD": str(library()), "BAD_MACHINE": str(state_file),
                    "BAD_MACHINE_FOLDER": os.fspath(folder)}  # fmt: skip

    def _tell(self):
        self.state[:] = STATE.pack(self.clock_s, *self.disk, 0)

    def set_clock(self, seconds):
        """The time of day is so far from what it is."""
        self.clock_s = seconds
        self._tell()

    def break_disk(self, how, times=0):
        """So often; 0: until it is mended."""
        self.disk = (*DISKS[how], times)
        self._tell()

    def mend_disk(self):
        self.disk = (WELL, 0, 0)
        self._tell()
