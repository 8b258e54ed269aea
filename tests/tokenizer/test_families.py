"""The tokenizers of the families that people have, against Hugging Face `tokenizers` and `tiktoken`.

Each has the normalizer, pre-tokenizer and post-processor that the family publishes. The vocabulary is one
for all, learnt from the texts themselves as wholes, so that its merges reach over every border that a
pre-tokenizer may draw: a border in the wrong place shows in the ids.
"""

import base64
import json
import os
import random

import pytest
import tiktoken
import tokenizers

from texts import any_characters, every_block, first_difference, joints, long_runs, mixed_scripts, run

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + SPACES)
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(upper, lower, end):
    first = r"[^\r\n\p{L}\p{N}]?"
    return f"{first}[{upper}]*[{lower}]+{end}|{first}[{upper}]+[{lower}]*{end}"


O200K = cased(UPPER, LOWER, CONTRACTIONS + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES
TEKKEN = cased(UPPER, LOWER, "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES
KIMI = (r"[\p{Han}]+|" + cased(UPPER + r"&&[^\p{Han}]", LOWER + r"&&[^\p{Han}]", CONTRACTIONS + "?")
        + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES)
# Letters that have a case.
V2_LETTERS = (
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943]+")


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(use_regex=False, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True,
            "use_regex": use_regex}


def sequence(*members):
    return {"type": "Sequence", "pretokenizers": list(members)}


BOS = {"type": "Sequence", "processors": [byte_level(True, True), {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [0], "tokens": ["<|begin|>"]}}}]}
NFC = {"type": "NFC"}

# name: (pre-tokenizer, the other fields that differ)
FAMILIES = {
    "llama-3": (sequence(split(LLAMA3), byte_level()), {"post_processor": BOS, "ignore_merges": True}),
    "qwen2": (sequence(split(QWEN2), byte_level()), {"normalizer": NFC}),
    "qwen3.5": (sequence(split(QWEN35), byte_level()), {"normalizer": NFC}),
    "glm-4.5": (sequence(split(LLAMA3), byte_level()), {"ignore_merges": True}),
    "gpt-oss": (sequence(split(O200K), byte_level()), {}),
    "tekken": (sequence(split(TEKKEN), byte_level()), {"ignore_merges": True}),
    "kimi-k2": (sequence(split(KIMI), byte_level()), {"ignore_merges": True}),
    "smollm2": (sequence({"type": "Digits", "individual_digits": True}, byte_level(True)), {}),
    "gpt-2": (byte_level(True), {}),
    "roberta": (byte_level(True, True), {}),
    "deepseek-v2": (sequence(split("[\r\n]"), split(V2_LETTERS), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
                             split(r"\s+$"), split("[一-龥ࠀ-一가-\ud7ff]+"),
                             {"type": "Digits", "individual_digits": True}, byte_level()), {}),
    "removed": (sequence(split(LLAMA3, "Removed", True), byte_level()), {}),
    "nfkc": (byte_level(True), {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Replace", "pattern": {"String": "ab"}, "content": "b"},
        {"type": "Prepend", "prepend": "▁"}]}}),
    "nfd": (byte_level(True), {"normalizer": {"type": "NFD"}}),
}
# One of each kind of pattern; the others only --long has.
QUICK = ("llama-3", "gpt-oss", "kimi-k2", "smollm2", "deepseek-v2")


@pytest.fixture(scope="module")
def texts():
    found = list(every_block())[:: 1 if "TROUPE_LONG" in os.environ else 3]
    count = 1000 if "TROUPE_LONG" in os.environ else 300
    for more in (mixed_scripts(3 * count), any_characters(2 * count), long_runs(count // 2),
                 joints(8 * count)):  # fmt: skip
        found += more
    return found


@pytest.fixture(scope="module")
def learnt(texts):
    """A vocabulary of bytes and of what follows what in the texts, with three added tokens."""
    rng = random.Random(9)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=6000, special_tokens=["<|begin|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(rng.sample(texts, min(6000, len(texts))), trainer)
    tokenizer.add_tokens(["<think>"])
    tokenizer.add_tokens([tokenizers.AddedToken("é<>", normalized=True)])
    return json.loads(tokenizer.to_str())


@pytest.fixture(scope="module", params=[
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in sorted(FAMILIES)
])
def family(request, learnt, tmp_path_factory):
    """The folder with the family's tokenizer.json, and the oracle."""
    pre_tokenizer, others = FAMILIES[request.param]
    tokenizer = json.loads(json.dumps(learnt))
    tokenizer["pre_tokenizer"] = pre_tokenizer
    tokenizer["post_processor"] = others.get("post_processor", byte_level(True, True))
    tokenizer["normalizer"] = others.get("normalizer")
    tokenizer["decoder"] = byte_level(True, True)
    tokenizer["model"]["ignore_merges"] = others.get("ignore_merges", False)
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8",
                                           errors="surrogatepass")
    return folder, tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_encode_and_decode(family, texts):
    folder, oracle = family
    expected = [e.ids for e in oracle.encode_batch_fast(texts, add_special_tokens=False)]
    assert first_difference(texts, run(folder, texts), expected) is None
    decoded = oracle.decode_batch(expected, skip_special_tokens=False)
    assert first_difference(expected, run(folder, expected, "--decode"), decoded) is None


def test_special_tokens_in_text_and_before_it(family):
    folder, oracle = family
    inputs = ["", "a", "<think>a<|begin|>", " <think> é<>b e\u0301<>b", "<|begin|", "ab\u0301<think>\u0301",
              "12\U00011de0\U00011de9"]  # digits of Unicode 17  # fmt: skip
    expected = [e.ids for e in oracle.encode_batch(inputs, add_special_tokens=True)]
    assert first_difference(inputs, run(folder, inputs, "--add-special-tokens"), expected) is None


@pytest.fixture(scope="module")
def kimi(learnt, tmp_path_factory):
    """A folder with tiktoken.model in the manner of Kimi K2, and tiktoken with the same ranks."""
    letters = {c: b for b, c in enumerate_alphabet()}
    words = [bytes(letters[c] for c in word) for word, _ in sorted(learnt["model"]["vocab"].items(),
                                                                  key=lambda item: item[1])
             if word not in ("<|begin|>", "<think>", "é<>")]
    folder = tmp_path_factory.mktemp("kimi")
    (folder / "tiktoken.model").write_bytes(
        b"".join(base64.b64encode(word) + b" %d\n" % rank for rank, word in enumerate(words)))
    named = {len(words): "[BOS]", len(words) + 1: "[EOS]", len(words) + 7: "<think>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]", "eos_token": "[EOS]",
        "added_tokens_decoder": {str(i): {"content": content, "special": content != "<think>"}
                                 for i, content in named.items()}}))
    special = {named.get(i, f"<|reserved_token_{i}|>"): i for i in range(len(words), len(words) + 256)}
    return folder, tiktoken.Encoding("kimi", pat_str=KIMI, special_tokens=special,
                                     mergeable_ranks={word: rank for rank, word in enumerate(words)})


def enumerate_alphabet():
    """GPT-2's alphabet: (byte, letter)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return [(b, chr(b)) for b in plain] + [(b, chr(256 + i)) for i, b in enumerate(others)]


def test_tiktoken_model(kimi, texts):
    folder, oracle = kimi
    first = oracle.n_vocab - 256
    inputs = texts + [f"a[BOS]<think> <|reserved_token_{first + 9}|>[EOS", "<|reserved_token_0|>", ""]
    expected = [oracle.encode(text, allowed_special="all") for text in inputs]
    assert first_difference(inputs, run(folder, inputs), expected) is None
    assert first_difference(inputs, run(folder, inputs, "--add-special-tokens"), expected) is None
    decoded = [oracle.decode(ids) for ids in expected]
    assert first_difference(expected, run(folder, expected, "--decode"), decoded) is None
