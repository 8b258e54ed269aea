"""A checkpoint with as many tensors as DeepSeek-V3 has, each of them tiny."""

import json
import random
import shutil
import struct

from running import DEMO, V3

LAYERS, DENSE, EXPERTS, HIDDEN, INNER, HEADS, VOCABULARY = 61, 3, 256, 32, 16, 4, 4096


def shapes():
    """Every tensor of the model, without the additional layer."""
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", (HIDDEN,)
        yield name + "post_attention_layernorm.weight", (HIDDEN,)
        yield name + "self_attn.q_a_proj.weight", (16, HIDDEN)
        yield name + "self_attn.q_a_layernorm.weight", (16,)
        yield name + "self_attn.q_b_proj.weight", (HEADS * 16, 16)
        yield name + "self_attn.kv_a_proj_with_mqa.weight", (16 + 8, HIDDEN)
        yield name + "self_attn.kv_a_layernorm.weight", (16,)
        yield name + "self_attn.kv_b_proj.weight", (HEADS * 16, 16)
        yield name + "self_attn.o_proj.weight", (HIDDEN, HEADS * 8)
        if layer < DENSE:
            yield from mlp(name + "mlp.", 64)
            continue
        yield name + "mlp.gate.weight", (EXPERTS, HIDDEN)
        yield name + "mlp.gate.e_score_correction_bias", (EXPERTS,)
        yield from mlp(name + "mlp.shared_experts.", INNER)
        for expert in range(EXPERTS):
            yield from mlp(f"{name}mlp.experts.{expert}.", INNER)


def mlp(name, width):
    yield name + "gate_proj.weight", (width, HIDDEN)
    yield name + "up_proj.weight", (width, HIDDEN)
    yield name + "down_proj.weight", (HIDDEN, width)


def numbers(count):
    """bf16 numbers of about 1/8, of both signs."""
    source = random.Random(count)
    return b"".join(
        struct.pack("<H", source.choice((0x3D00, 0xBD00, 0x3E00, 0xBE00)) + source.randrange(128))
        for _ in range(count)
    )


def write_file(path, tensors, pool):
    header, data = {}, bytearray()
    for name, shape in tensors:
        size = 2
        for dimension in shape:
            size *= dimension
        begin = len(data)
        at = hash_of(name) % (len(pool) - size) // 2 * 2
        data += pool[at : at + size]
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, begin + size]}
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def hash_of(name):
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 % (1 << 32)
    return value


def many_tensors(folder, files):
    """Writes it, in so many files; says how many tensors it has."""
    folder.mkdir()
    config = json.loads((V3 / "config.json").read_text())
    config.update(
        hidden_size=HIDDEN, moe_intermediate_size=INNER, intermediate_size=64, num_hidden_layers=LAYERS,
        first_k_dense_replace=DENSE, n_routed_experts=EXPERTS, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, num_experts_per_tok=8, n_group=8, topk_group=4, q_lora_rank=16,
        kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, vocab_size=VOCABULARY,
        num_nextn_predict_layers=0,
    )  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(DEMO / name, folder / name)
    tensors = list(shapes())
    pool = numbers(VOCABULARY * HIDDEN + 1024)
    names = ["model.safetensors"] if files == 1 else [
        f"model-{number + 1:05}-of-{files:05}.safetensors" for number in range(files)]  # fmt: skip
    for number, name in enumerate(names):
        write_file(folder / name, tensors[number::files], pool)
    if files > 1:
        index = {tensor: names[number % files] for number, (tensor, _) in enumerate(tensors)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return len(tensors)
