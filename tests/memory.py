"""The memory of a running worker, from outside: where its packed weights lie, and a bit of them flipped.

A parent may write to its children's memory through /proc/PID/mem, so the program needs no hook for it.
"""

import json
import os
import pathlib
import struct

TILE = 16  # outputs that are packed side by side (kernels/cpu/weight_layout.h)
PAIRS = 4  # of inputs; enough bytes to be found by


def stored_rows(model, tensor, rows):
    """The first rows of a bf16 matrix of a checkpoint of one file."""
    with open(model / "model.safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(length))[tensor]
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "BF16" and entry["shape"][0] >= rows
        width = (end - begin) // entry["shape"][0]
        file.seek(8 + length + begin)
        return [file.read(width) for _ in range(rows)]


def packed_start(model, tensor):
    """How a bf16 matrix begins in memory: pairs of inputs, for 16 outputs side by side."""
    rows = stored_rows(model, tensor, TILE)
    return b"".join(row[4 * pair : 4 * pair + 4] for pair in range(PAIRS) for row in rows)


def places(pid, pattern):
    """Addresses in a process where these bytes are."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            words = line.split()
            if not words[1].startswith("rw"):
                continue
            begin, end = (int(word, 16) for word in words[0].split("-"))
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except (OSError, OverflowError):
                continue
            at = data.find(pattern)
            while at >= 0:
                found.append(begin + at)
                at = data.find(pattern, at + 1)
    return found


def flip(pid, address, bit=3):
    with open(f"/proc/{pid}/mem", "r+b", 0) as memory:
        memory.seek(address)
        (byte,) = memory.read(1)
        memory.seek(address)
        memory.write(bytes([byte ^ 1 << bit]))


def devices(pid):
    """What stands for the memory of a process's GPUs: files of its twins."""
    links = pathlib.Path(f"/proc/{pid}/fd").iterdir()
    return [link for link in links if "memfd:cuda-twin" in os.readlink(link)]


def poke_device(pid, model, tensor):
    """The same as poke() in the memory of the process's devices."""
    pattern, flipped = packed_start(model, tensor), 0
    for device in devices(pid):
        with open(device, "r+b", 0) as file:
            end = file.seek(0, os.SEEK_END)
            at = 0
            while at < end:
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                except OSError:  # no more
                    break
                begin, at = at, os.lseek(file.fileno(), at, os.SEEK_HOLE)
                place = os.pread(file.fileno(), at - begin, begin).find(pattern)
                if place >= 0:
                    place += begin + TILE + 2
                    (byte,) = os.pread(file.fileno(), 1, place)
                    os.pwrite(file.fileno(), bytes([byte ^ 8]), place)
                    flipped += 1
    return flipped


def poke(pid, model, tensor):
    """Flips a bit in every copy of a tensor that a process holds; says how many there were."""
    found = places(pid, packed_start(model, tensor))
    for address in found:
        flip(pid, address + TILE + 2)
    return len(found)
