"""GGUF files give what the same model gives from safetensors."""

import json
import math
import random
import struct

import pytest

from gguf_file import (BLOCKS, PLAIN, gguf, gguf_name, metadata_of, random_blocks, read_safetensors,
                       write_safetensors)  # fmt: skip
from running import GOLDEN, float32_bits, generate, run


def neighbours(rows, heads):
    """Llama's queries and keys as llama.cpp's converter orders them: what turns together, together."""
    each = len(rows) // heads
    return [rows[h * each + half * each // 2 + i]
            for h in range(heads) for i in range(each // 2) for half in (0, 1)]  # fmt: skip


def floats_of_bf16(stored):
    return [struct.unpack("<f", b"\0\0" + stored[i : i + 2])[0] for i in range(0, len(stored), 2)]


def rope_factors(config):
    """How much longer each wavelength of Llama 3.1 gets, as the converter writes it."""
    scaling, dim = config["rope_scaling"], config["head_dim"]
    factors = []
    for i in range(dim // 2):
        length = 2 * math.pi * config["rope_theta"] ** (2 * i / dim)
        old = scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        if length < old / high:
            factors.append(1.0)
        elif length > old / low:
            factors.append(scaling["factor"])
        else:
            smooth = (old / length - low) / (high - low)
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return factors


def write_golden(name, kind, path):
    folder = GOLDEN / name
    config = json.loads((folder / "config.json").read_text())
    tensors = {}
    for tensor, (dtype, shape, stored) in read_safetensors(folder / "model.safetensors").items():
        assert dtype == "BF16"
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(tensor.split(".")[-2])
        if name == "llama" and heads:
            row = len(stored) // shape[0]
            rows = [stored[i : i + row] for i in range(0, len(stored), row)]
            stored = b"".join(neighbours(rows, config[heads]))
        to = kind if len(shape) == 2 else "F32"
        if to != "BF16":
            numbers = floats_of_bf16(stored)
            stored = struct.pack(f"<{len(numbers)}{'e' if to == 'F16' else 'f'}", *numbers)
        tensors[gguf_name(tensor)] = shape, PLAIN[to], stored
    if name == "llama":
        factors = rope_factors(config)
        tensors["rope_freqs.weight"] = [len(factors)], 0, struct.pack(f"<{len(factors)}f", *factors)
    path.write_bytes(gguf(metadata_of(config), tensors))


@pytest.mark.parametrize("kind", ["F16", "BF16"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_golden_answers(name, kind, tmp_path):
    file = tmp_path / "model.gguf"
    write_golden(name, kind, file)
    for case in json.loads((GOLDEN / name / "golden.json").read_text())["prompts"]:
        words = ["--prompt-ids", ",".join(map(str, case["prompt"])), "--prompt-logprobs", "--temperature", 0,
                 "--max-tokens", len(case["greedy"]), "--ignore-eos", "--threads", 1]  # fmt: skip
        # The folder's only GGUF file.
        answer = generate(tmp_path, *words, "--numerics", "reference")
        for seen, expected in zip(answer["prompt_logprobs"][1:], case["prompt_logprobs"][1:], strict=True):
            assert abs(seen - expected) <= 0.01
        for seen, expected, margin in zip(answer["tokens"], case["greedy"], case["margin"]):
            if seen != expected:
                assert margin <= 0.02
                break
        if name != "llama":  # whose products are summed in another order
            bits = [generate(model, *words) for model in (file, GOLDEN / name)]
            assert bits[0]["tokens"] == bits[1]["tokens"]
            if kind == "BF16":
                assert float32_bits(bits[0]["prompt_logprobs"]) == float32_bits(bits[1]["prompt_logprobs"])


CONFIG = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 1,
    "max_position_embeddings": 64, "hidden_size": 256, "intermediate_size": 512, "rms_norm_eps": 1e-6,
    "num_attention_heads": 8, "num_key_value_heads": 2, "rope_theta": 10000.0, "vocab_size": 64,
    "tie_word_embeddings": True,
}  # fmt: skip
LAYER = "model.layers.0."
SHAPES = {
    "model.embed_tokens.weight": [64, 256], "model.norm.weight": [256],
    LAYER + "input_layernorm.weight": [256], LAYER + "post_attention_layernorm.weight": [256],
    LAYER + "self_attn.q_proj.weight": [256, 256], LAYER + "self_attn.q_proj.bias": [256],
    LAYER + "self_attn.k_proj.weight": [64, 256], LAYER + "self_attn.k_proj.bias": [64],
    LAYER + "self_attn.v_proj.weight": [64, 256], LAYER + "self_attn.v_proj.bias": [64],
    LAYER + "self_attn.o_proj.weight": [256, 256], LAYER + "mlp.gate_proj.weight": [512, 256],
    LAYER + "mlp.up_proj.weight": [512, 256], LAYER + "mlp.down_proj.weight": [256, 512],
}  # fmt: skip


def make_small(kind, seed=1):
    """A model in blocks, and the numbers in it: (GGUF's tensors, safetensors')."""
    rng = random.Random(seed)
    stored, plain = {}, {}
    for name, shape in SHAPES.items():
        if len(shape) == 2:
            data, numbers = random_blocks(rng, kind, shape[0] * shape[1])
            stored[gguf_name(name)] = shape, BLOCKS[kind][0], data
        else:
            drawn = [rng.uniform(0.5, 1.5) for _ in range(shape[0])]
            numbers = [struct.unpack("<f", struct.pack("<f", x))[0] for x in drawn]
            stored[gguf_name(name)] = shape, PLAIN["F32"], struct.pack(f"<{shape[0]}f", *numbers)
        plain[name] = shape, numbers
    return stored, plain


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks(kind, tmp_path):
    """Bit for bit what the numbers in the blocks give as float32."""
    stored, plain = make_small(kind)
    (tmp_path / "small.gguf").write_bytes(gguf(metadata_of(CONFIG), stored))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_safetensors(folder / "model.safetensors", plain)
    words = ["--prompt-ids", ",".join(map(str, range(20))), "--prompt-logprobs", "--max-tokens", 4,
             "--temperature", 0, "--threads", 1]  # fmt: skip
    for numerics in ("reference", "bf16"):
        blocks, numbers = (generate(model, *words, "--numerics", numerics)
                           for model in (tmp_path / "small.gguf", folder))  # fmt: skip
        assert blocks["tokens"] == numbers["tokens"]
        assert float32_bits(blocks["prompt_logprobs"]) == float32_bits(numbers["prompt_logprobs"])
        assert len(set(blocks["prompt_logprobs"])) > 10


def test_links_of_other_names(tmp_path):
    """As the hub's cache keeps them; workers follow links, and find a file of another name."""
    stored, _ = make_small("Q8_0")
    blob = tmp_path / "blobs" / ("5" * 64)
    blob.parent.mkdir()
    blob.write_bytes(gguf(metadata_of(CONFIG), stored))
    snapshot = tmp_path / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "small.gguf").symlink_to(f"../../blobs/{blob.name}")
    words = ["--prompt-ids", "1,2,3", "--max-tokens", 4, "--temperature", 0]
    answers = [generate(model, *words)["tokens"] for model in (blob, snapshot / "small.gguf", snapshot)]
    assert answers[0] == answers[1] == answers[2]


def test_yarn_lengthens_the_context(tmp_path):
    stored, _ = make_small("Q8_0")
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 32}
    told = metadata_of(CONFIG) | {f"qwen2.rope.scaling.{key}": v for key, v in scaling.items()}
    (tmp_path / "small.gguf").write_bytes(gguf(told, stored))
    answer = generate(tmp_path, "--prompt-ids", ",".join(["1"] * 120), "--max-tokens", 8, "--ignore-eos")
    assert len(answer["tokens"]) == 8  # up to position 128


def test_a_factor_without_a_type_is_linear(tmp_path):
    stored, _ = make_small("Q8_0")

    def tokens(**scaling):
        keys = {f"qwen2.rope.{key.replace('__', '.')}": value for key, value in scaling.items()}
        told = metadata_of(CONFIG) | keys
        (tmp_path / "small.gguf").write_bytes(gguf(told, stored))
        words = ["--prompt-ids", "1,2,3,4,5,6,7,8", "--max-tokens", 8, "--ignore-eos", "--temperature", 0]
        return generate(tmp_path, *words)["tokens"]

    linear = tokens(scaling__type="linear", scaling__factor=2.0)
    assert tokens(scaling__factor=2.0) == tokens(scale_linear=2.0) == linear
    assert tokens() != linear
    assert tokens(scaling__factor=0.0) == tokens(scaling__type="none", scaling__factor=2.0) == tokens()


# --- Files that lie ------------------------------------------------------------------------------

def said_of(path, data):
    path.write_bytes(data)
    done = run("generate", "--model", path, "--prompt-ids", "1,2", "--max-tokens", 1)
    assert done.returncode != 0
    return done.stderr


def changed(metadata=(), tensors=(), **options):
    stored, _ = make_small("Q8_0")
    return gguf(metadata_of(CONFIG) | dict(metadata), stored | dict(tensors), **options)


def hostile():
    good = changed()
    at = good.index(b"token_embd.weight")
    info = at + len("token_embd.weight")  # axes, two sizes, type, offset
    name = good.index(b"qwen2.block_count")
    patch = lambda place, form, *numbers: (  # noqa: E731
        good[:place] + struct.pack(form, *numbers) + good[place + struct.calcsize(form) :])
    yield "no GGUF", b"XXXX" + good[4:], "should begin with"
    yield "empty", b"", "truncated"
    yield "cut in the metadata", good[:200], "more than fit"
    yield "cut in a tensor's entry", good[: good.rindex(b"blk.0.")], "truncated in its metadata"
    yield "cut in the data", good[:-1000], "truncated or its offsets"
    yield "old", patch(4, "<I", 1), "version 1"
    yield "big-endian", patch(4, ">I", 3), "big-endian"
    yield "too many tensors", patch(8, "<Q", 1 << 60), "more than fit"
    yield "too many keys", patch(16, "<Q", 1 << 60), "more than fit"
    yield "long name", patch(name - 8, "<Q", 1 << 62), "truncated"
    yield "unknown value", patch(name + 17, "<I", 77), "does not know"
    yield "no axis", patch(info, "<I", 0), "1 to 4 axes"
    yield "many axes", patch(info, "<I", 1 << 30), "1 to 4 axes"
    yield "negative size", patch(info + 4, "<q", -256), "has an axis of"
    yield "huge sizes", patch(info + 4, "<QQ", 1 << 48, 1 << 48), "sizes that do not suit"
    yield "half a block", patch(info + 4, "<Q", 255), "sizes that do not suit"
    yield "another shape", patch(info + 4, "<Q", 128), "shape"
    yield "unknown type", patch(info + 20, "<I", 10), "stored as Q2_K; the types supported are F32"
    yield "odd offset", patch(info + 24, "<Q", 1), "multiple of 32"
    yield "offset past the end", patch(info + 24, "<Q", 1 << 63), "offsets are wrong"
    yield "overlap", patch(info + 24, "<Q", 64 * 272), "overlaps"
    yield "alignment", changed({"general.alignment": 48}), "power of two"
    yield "family", changed({"general.architecture": "mamba"}), "served from GGUF are llama, qwen2, qwen3"
    yield "parts", changed({"qwen2.expert_count": 8}), "not supported"
    yield "a value's type", changed({"qwen2.block_count": "one"}), "num_hidden_layers"
    yield "a size that is too large", changed({"qwen2.block_count": 1 << 31}), "num_hidden_layers"
    renamed = good.replace(b"blk.0.attn_q.weight", b"blk.9.attn_q.weight")
    yield "missing tensor", renamed, "lacks the tensor blk.0.attn_q"
    yield "twice", good.replace(b"blk.0.attn_k.weight", b"blk.0.attn_q.weight"), "is there twice"
    nested = struct.pack("<IIQ", 9, 9, 1 << 40)
    deep = good[: name - 8] + struct.pack("<Q", 4) + b"deep" + nested + good[name - 8 :]
    count = struct.pack("<Q", struct.unpack_from("<Q", good, 16)[0] + 1)
    yield "lists of lists", deep[:16] + count + deep[24:], "a list of lists"
    infinite = struct.pack("<e", math.inf)
    stored, _ = make_small("Q8_0")
    shape, kind, data = stored["blk.0.attn_v.weight"]
    spoilt = {"blk.0.attn_v.weight": (shape, kind, data[:34 * 9] + infinite + data[34 * 9 + 2 :])}
    yield "infinity", changed(tensors=spoilt), "blk.0.attn_v.weight holds a NaN or an infinity at [1, 32]"


CASES = list(hostile())


@pytest.mark.parametrize("data, words", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_lies_are_told(data, words, tmp_path):
    said = said_of(tmp_path / "bad.gguf", data)
    assert words in said
    assert "bad.gguf" in said


def test_two_files_are_ambiguous(tmp_path):
    (tmp_path / "one.gguf").write_bytes(b"")
    (tmp_path / "two.gguf").write_bytes(b"")
    done = run("generate", "--model", tmp_path, "--prompt-ids", "1")
    assert done.returncode != 0 and "2 GGUF files" in done.stderr
