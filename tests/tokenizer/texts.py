"""Texts that are hard on a tokenizer, from fixed seeds, and `troupe tokenize` to give them to."""

import json
import os
import random
import subprocess
import unicodedata
from pathlib import Path

TROUPE = Path(os.environ.get("TROUPE", Path(__file__).resolve().parents[2] / "build" / "troupe"))


def run(folder, values, *flags):
    """Feeds JSON values to `troupe tokenize`, one a line, and returns what comes back."""
    lines = "".join(json.dumps(value) + "\n" for value in values)
    done = subprocess.run(
        [TROUPE, "tokenize", "--model", folder, "--json", *flags],
        input=lines.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    results = [json.loads(line) for line in done.stdout.split(b"\n") if line]
    assert len(results) == len(values)
    return results


def first_difference(inputs, got, expected):
    for value, ours, theirs in zip(inputs, got, expected):
        if ours != theirs:
            return f"{value!r}: {ours!r} instead of {theirs!r}"
    return None


def is_text(code):
    return not 0xD800 <= code < 0xE000


def letters(rng, low, high, count):
    out = []
    while len(out) < count:
        code = rng.randint(low, high)
        if is_text(code):
            out.append(chr(code))
    return "".join(out)


SCRIPTS = [(0x20, 0x7E), (0xA0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF),
           (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x3040, 0x30FF),
           (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (0x1F300, 0x1FAFF)]
SPACES = ["\t", "\n", "\v", "\f", "\r", "\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u180e",
          "\u2000", "\u200a", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff",
          " ", "  ", "\r\n", "\n\n", " \n", "\n "]
BROKEN = ["<", "|", "｜", "<｜", "｜>", "<｜User", "User｜>", "<｜User｜", "<think", "think>", "</think",
          "<<think>>", "<｜begin▁of▁sentence", "▁", "<think>", "</think>", "<｜tool▁sep｜"]


def every_block():
    """Every code point there is, in texts of one block of 256 each, whole and in pieces."""
    rng = random.Random(1)
    for block in range(0, 0x110000, 0x100):
        codes = [c for c in range(block, block + 0x100) if is_text(c)]
        if not codes:
            continue
        yield "".join(map(chr, codes))
        if all(unicodedata.category(chr(c)) in ("Cn", "Co") for c in codes) and block % 0x1000:
            continue  # The vast unassigned planes need no more than a look.
        for _ in range(6):
            some = [chr(rng.choice(codes)) for _ in range(rng.randint(1, 24))]
            yield "".join(c + rng.choice(["", "", " ", "a", "1", "\n", "!"]) for c in some)


def around_special_tokens(tokenizer, count):
    rng = random.Random(2)
    known = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 8)):
            kind = rng.randrange(5)
            if kind == 0:
                parts.append(rng.choice(known))
            elif kind == 1:
                token = rng.choice(known)
                parts.append(token[: rng.randint(0, len(token))])
            elif kind == 2:
                token = rng.choice(known)
                parts.append(token[rng.randint(0, len(token)):])
            elif kind == 3:
                parts.append(rng.choice(BROKEN + SPACES))
            else:
                parts.append(letters(rng, *rng.choice(SCRIPTS), rng.randint(0, 4)))
        yield "".join(parts)


def mixed_scripts(count):
    rng = random.Random(3)
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 12)):
            parts.append(letters(rng, *rng.choice(SCRIPTS), rng.randint(1, 9)))
            parts.append(rng.choice(SPACES + ["", "'s", "'ll", ".", "1", "12345", "-"]))
        yield "".join(parts)


def any_characters(count):
    rng = random.Random(4)
    for _ in range(count):
        yield letters(rng, 0, rng.choice([0x7F, 0x2FF, 0x33FF, 0xFFFF, 0x10FFFF]), rng.randint(0, 40))


def long_runs(count):
    rng = random.Random(5)
    alphabet = [" ", "\n", "\t", "a", "A", "1", "是", "ア", "!", "-", "é", "\u0301", "👍", "\u200d", "\xa0"]
    for _ in range(count):
        char = rng.choice(alphabet + [letters(rng, 0x20, 0x10FFFF, 1)])
        before, after = rng.choice(["", "x", " ", "\n"]), rng.choice(["", "y", " ", "\n", "."])
        yield before + char * rng.randint(2, 600) + after


def words_of_the_vocabulary(tokenizer, count):
    """Texts whose merges are dense: what the vocabulary itself is made of."""
    rng = random.Random(6)
    size = tokenizer.get_vocab_size()
    for _ in range(count):
        ids = [rng.randrange(size) for _ in range(rng.randint(1, 12))]
        yield tokenizer.decode(ids, skip_special_tokens=True)


# Where patterns, classes and normal forms have their seams.
ATOMS = ["'", "’", "'s", "'S", "'\u017f", "'T", "'re", "'RE", "'rE", "'ve", "'m", "'ll", "'LL", "'d",
         "'x", "\u212a", "\u017f", "a", "B", "ab", "AB", "Ab", "aB", "ABc", "é", "É", "e\u0301",
         "E\u0301", "\u0301", "\u0300\u0323", "\u0323\u0300", "\u0344", "\u01c5", "\u02b0", "ª", "ß",
         "ﬁ", "ǆ", "Å", "\u212b", "1", "12", "1234", "²", "½", "Ⅷ", "٣", "一", "二三", "々", "〇", "〡", "龥",
         "\u9fef", "㐀", "豈", "丽", "\U00020000", "\U0002ebf0", "\U00031350", "ア", "ｱ", "ー", "한",
         "\u1112\u1161\u11ab", "가", "힣", " ", "  ", "\t", "\n", "\r", "\r\n", "\n\n", "\u00a0", "\u3000",
         "\u2028", "\x85", "\u200b", "\u200d", "!", "?!", "/", "//", "-", "_", "#", "(", ")", "<|", "|>",
         "€", "+", "=", "，", "。", "「", "👍", "👩\u200d🔬", "क", "\u093f", "ก", "\u0e34", "א", "\u05b0", "ع",
         "\u064b", "Ω", "\u2126", "ω", "Ж", "ж", "\ufeff", "\x00"]


def joints(count):
    rng = random.Random(8)
    for _ in range(count):
        yield "".join(rng.choices(ATOMS, k=rng.randint(1, 16)))
