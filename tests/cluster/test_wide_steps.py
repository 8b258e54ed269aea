"""Steps whose messages would not fit into a frame: a model with wide rows and many experts a row."""

import json
import random
import struct

import pytest

from running import ROOT

HIDDEN, EXPERTS, VOCAB = 8192, 64, 256


def tensors():
    """Name and shape of each tensor; all are bfloat16 but the gate's bias."""
    yield "model.embed_tokens.weight", [VOCAB, HIDDEN]
    yield "lm_head.weight", [VOCAB, HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    for layer in (0, 1):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", [HIDDEN]
        yield name + "post_attention_layernorm.weight", [HIDDEN]
        yield name + "self_attn.q_a_proj.weight", [32, HIDDEN]
        yield name + "self_attn.q_a_layernorm.weight", [32]
        yield name + "self_attn.q_b_proj.weight", [32, 32]
        yield name + "self_attn.kv_a_proj_with_mqa.weight", [48, HIDDEN]
        yield name + "self_attn.kv_a_layernorm.weight", [32]
        yield name + "self_attn.kv_b_proj.weight", [32, 32]
        yield name + "self_attn.o_proj.weight", [HIDDEN, 16]
        parts = [""] if layer == 0 else [*(f"experts.{e}." for e in range(EXPERTS)), "shared_experts."]
        for part in parts:
            yield f"{name}mlp.{part}gate_proj.weight", [16, HIDDEN]
            yield f"{name}mlp.{part}up_proj.weight", [16, HIDDEN]
            yield f"{name}mlp.{part}down_proj.weight", [HIDDEN, 16]
    yield "model.layers.1.mlp.gate.weight", [EXPERTS, HIDDEN]
    yield "model.layers.1.mlp.gate.e_score_correction_bias", [EXPERTS]


@pytest.fixture
def wide(tmp_path):
    """Each row takes all 64 experts: 2 MiB of outputs in float32."""
    folder = tmp_path / "wide"
    folder.mkdir()
    config = json.loads((ROOT / "tests/golden/v3/config.json").read_text())
    del config["rope_scaling"]
    config |= {
        "hidden_size": HIDDEN, "vocab_size": VOCAB, "n_routed_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS,
        "n_group": 1, "topk_group": 1, "num_hidden_layers": 2, "num_nextn_predict_layers": 0,
        "num_attention_heads": 1, "num_key_value_heads": 1, "q_lora_rank": 32, "kv_lora_rank": 32,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "moe_intermediate_size": 16,
        "intermediate_size": 16, "max_position_embeddings": 4096,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    draw = random.Random(5)
    numbers = [draw.choice((0x3C00, 0xBC00)) + draw.randrange(128) for _ in range(4096)]
    tile = struct.pack("<4096H", *numbers)
    header, at, sizes = {}, 0, []
    for name, shape in tensors():
        f32 = name.endswith("bias")
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        sizes.append(count * (4 if f32 else 2))
        header[name] = {"dtype": "F32" if f32 else "BF16", "shape": shape,
                        "data_offsets": [at, at + sizes[-1]]}  # fmt: skip
        at += sizes[-1]
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for (name, _), size in zip(tensors(), sizes):
            bias = name.endswith("bias")
            file.write(bytes(size) if bias else (tile * (size // len(tile) + 1))[:size])
    return folder


@pytest.mark.long
def test_a_prompt_whose_outputs_fill_many_frames(cluster, wide):
    cluster.up(wide, "--threads", 1, "--data-parallel-size", 1, "--numerics", "reference",
               "--kv-cache-memory", "16MiB", "--device-memory", "8GiB", "--request-timeout", 150,
               "--max-num-batched-tokens", 1 << 20)  # fmt: skip
    prompt = [2 + i % 200 for i in range(1600)]
    body = {"prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True}  # fmt: skip
    status, answer = cluster.post("/v1/completions", body, seconds=300)
    assert status == 200, f"{answer}\n{cluster.logs()}"
    assert len(answer["choices"][0]["token_ids"]) == 2
