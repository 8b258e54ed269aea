"""A program on a terminal of its own: what its screen shows, and how it leaves it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pyte

from running import PATIENCE_S


class Screen:
    """`words` run on a pseudo terminal, whose output a terminal emulator draws."""

    def __init__(self, words, env, columns=80, rows=24):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows, tell=False)
        self.before = termios.tcgetattr(self.slave)
        self.popen = subprocess.Popen(
            [str(word) for word in words], stdin=self.slave, stdout=self.slave, stderr=self.slave,
            env=env, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(PATIENCE_S)
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns, rows, tell=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)
        if tell:
            self.popen.send_signal(signal.SIGWINCH)

    def press(self, keys):
        os.write(self.master, keys.encode())

    def _read(self, seconds):
        """A part of what it has written; whether there was any."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.raw += data
        self.stream.feed(data)
        return True

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait(self, *words, seconds=PATIENCE_S):
        """Until all words are on the screen; the screen comes back."""
        end = time.monotonic() + seconds
        while not all(word in self.text() for word in words):
            assert time.monotonic() < end, f"{words} are not on the screen:\n{self.text()}"
            assert self.popen.poll() is None, f"it ended:\n{self.text()}"
            self._read(0.05)
        return self.text()

    def wait_written(self, text, seconds=PATIENCE_S):
        """Until it has written this, whether or not it is on the screen still."""
        end = time.monotonic() + seconds
        while text.encode() not in self.raw:
            assert time.monotonic() < end, f"'{text}' was not written:\n{self.text()}"
            self._read(0.05)

    def wait_match(self, pattern, seconds=PATIENCE_S):
        """Until the screen matches a regular expression."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text()):
            assert time.monotonic() < end, f"nothing like {pattern} is on the screen:\n{self.text()}"
            self._read(0.05)

    def exit_code(self, seconds=PATIENCE_S):
        end = time.monotonic() + seconds
        while self.popen.poll() is None:
            assert time.monotonic() < end, f"it still runs:\n{self.text()}"
            self._read(0.05)
        while self._read(0.05):
            pass
        return self.popen.returncode

    def assert_left_as_found(self):
        """The modes are what they were, the other screen was left, the cursor is back."""
        assert termios.tcgetattr(self.slave) == self.before
        if b"\x1b[?1049h" in self.raw:
            assert self.raw.rindex(b"\x1b[?1049l") > self.raw.rindex(b"\x1b[?1049h")
        for hide, back in ((b"\x1b[?25l", b"\x1b[?25h"),):
            if hide in self.raw:
                assert self.raw.rindex(back) > self.raw.rindex(hide)
