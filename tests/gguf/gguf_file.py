"""Writes GGUF files, and says what ggml's blocks hold, after ggml's ggml-quants.c."""

import json
import struct

U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10
PLAIN = {"F32": 0, "F16": 1, "BF16": 30}


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def half(block, at):
    return struct.unpack_from("<e", block, at)[0]


# --- Blocks: number j of a block, each formula in float32 ----------------------------------------

def nibble(block, at, j):
    """In blocks of 32 the low halves of the bytes hold the first 16."""
    return block[at + j % 16] >> (4 if j >= 16 else 0) & 15


def fifth(block, at, j):
    return (struct.unpack_from("<I", block, at)[0] >> j & 1) * 16


def k_scales(block, sub):
    """Scale and least value of a sub-block of 32: six bits each, packed into 12 bytes."""
    packed = block[4:16]
    if sub < 4:
        scale, least = packed[sub] & 63, packed[sub + 4] & 63
    else:
        scale = packed[sub + 4] & 15 | packed[sub - 4] >> 6 << 4
        least = packed[sub + 4] >> 4 | packed[sub] >> 6 << 4
    return f32(half(block, 0) * scale), f32(half(block, 2) * least)


def q4_k(block, j):
    scale, least = k_scales(block, j // 32)
    return f32(f32(scale * (block[16 + j // 64 * 32 + j % 32] >> j // 32 % 2 * 4 & 15)) - least)


def q5_k(block, j):
    scale, least = k_scales(block, j // 32)
    low = block[48 + j // 64 * 32 + j % 32] >> j // 32 % 2 * 4 & 15
    return f32(f32(scale * (low + (block[16 + j % 32] >> j // 32 & 1) * 16)) - least)


def q6_k(block, j):
    part, k = divmod(j, 128)
    low = block[part * 64 + k % 64] >> k // 64 * 4 & 15
    high = block[128 + part * 32 + k % 32] >> k // 32 * 2 & 3
    own = struct.unpack_from("<b", block, 192 + j // 16)[0]
    return f32(f32(half(block, 208) * own) * (low + high * 16 - 32))


# name: (type, numbers, bytes, where float16 scales lie, number j)
BLOCKS = {
    "Q4_0": (2, 32, 18, (0,), lambda b, j: f32(half(b, 0) * (nibble(b, 2, j) - 8))),
    "Q4_1": (3, 32, 20, (0, 2), lambda b, j: f32(f32(half(b, 0) * nibble(b, 4, j)) + half(b, 2))),
    "Q5_0": (6, 32, 22, (0,), lambda b, j: f32(half(b, 0) * (nibble(b, 6, j) + fifth(b, 2, j) - 16))),
    "Q5_1": (7, 32, 24, (0, 2),
             lambda b, j: f32(f32(half(b, 0) * (nibble(b, 8, j) + fifth(b, 4, j))) + half(b, 2))),
    "Q8_0": (8, 32, 34, (0,), lambda b, j: f32(half(b, 0) * struct.unpack_from("<b", b, 2 + j)[0])),
    "Q4_K": (12, 256, 144, (0, 2), q4_k),
    "Q5_K": (13, 256, 176, (0, 2), q5_k),
    "Q6_K": (14, 256, 210, (208,), q6_k),
}  # fmt: skip


def random_blocks(rng, name, numbers):
    """Bytes of a tensor, and the numbers in them; scales are such that those stay small."""
    _, each, size, scales, value = BLOCKS[name]
    data, values = bytearray(), []
    for _ in range(numbers // each):
        block = bytearray(rng.randbytes(size))
        for at in scales:
            most = 2e-5 if name.endswith("_K") else 4e-3
            block[at : at + 2] = struct.pack("<e", rng.uniform(-most, most))
        data += block
        values += [value(block, j) for j in range(each)]
    return bytes(data), values


# --- Files --------------------------------------------------------------------------------------

def string(text):
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(text)) + text


def value(v):
    if isinstance(v, bool):
        return struct.pack("<I?", BOOL, v)
    if isinstance(v, int):
        return struct.pack("<II", U32, v)
    if isinstance(v, float):
        return struct.pack("<If", F32, v)
    if isinstance(v, str):
        return struct.pack("<I", STRING) + string(v)
    return struct.pack("<IIQ", ARRAY, STRING, len(v)) + b"".join(map(string, v))


def gguf(metadata, tensors, alignment=32):
    """`tensors`: name -> (shape, rows first; type's number; bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, v in metadata.items():
        head += string(key) + value(v)
    data = b""
    for name, (shape, kind, stored) in tensors.items():
        data += bytes(-len(data) % alignment)
        head += string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += stored
    return head + bytes(-len(head) % alignment) + data


def read_safetensors(path):
    """name -> (dtype, shape, bytes)"""
    text = path.read_bytes()
    end = 8 + struct.unpack_from("<Q", text)[0]
    found = {}
    for name, entry in json.loads(text[8:end]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            found[name] = entry["dtype"], entry["shape"], text[end + first : end + last]
    return found


def write_safetensors(path, tensors):
    """`tensors`: name -> (shape, numbers), stored as float32."""
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        stored = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# --- Models -------------------------------------------------------------------------------------

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def gguf_name(name):
    module, kind = name.rsplit(".", 1)
    if module.startswith("model.layers."):
        layer, module = module.removeprefix("model.layers.").split(".", 1)
        return f"blk.{layer}.{NAMES[module]}.{kind}"
    return f"{NAMES[module]}.{kind}"


def metadata_of(config):
    family = config["model_type"]
    heads = config["num_attention_heads"]
    told = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config.get("head_dim") or config["hidden_size"] // heads,
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "rope.freq_base": float(config["rope_theta"]),
    }
    return {"general.architecture": family} | {f"{family}.{key}": v for key, v in told.items()}
