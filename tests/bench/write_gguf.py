"""A bf16 checkpoint of ours as a GGUF file: write_gguf.py FOLDER FILE.

Only what the benchmarks compare: the shapes deepseek2 with latent attention, and llama. There is no
tokenizer. llama's q and k are not permuted, so its numbers are others, of the same cost.
"""

import json
import struct
import sys
from pathlib import Path

import gguf
import numpy as np

BF16 = gguf.GGMLQuantizationType.BF16
F32 = gguf.GGMLQuantizationType.F32
NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_a_proj.weight": "attn_q_a.weight",
    "self_attn.q_a_layernorm.weight": "attn_q_a_norm.weight",
    "self_attn.q_b_proj.weight": "attn_q_b.weight",
    "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.shared_experts.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_experts.down_proj.weight": "ffn_down_shexp.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
}
ENDS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight"}  # fmt: skip


class Checkpoint:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.entries = {}
        for path in sorted(folder.glob("*.safetensors")):
            with open(path, "rb") as file:
                length = struct.unpack("<Q", file.read(8))[0]
                header = json.loads(file.read(length))
            data = np.memmap(path, np.uint8, "r", 8 + length)
            for name, entry in header.items():
                if name != "__metadata__":
                    assert entry["dtype"] == "BF16", f"{name} is {entry['dtype']}"
                    begin, end = entry["data_offsets"]
                    self.entries[name] = (data[begin:end], entry["shape"])

    def bits(self, name):
        """bf16 numbers as uint16."""
        data, shape = self.entries[name]
        return data.view(np.uint16).reshape(shape)


class Plan:
    """Tensors with their shapes first, their numbers when they are written."""

    def __init__(self, checkpoint):
        self.checkpoint = checkpoint
        self.items = []  # name, shape, type, numbers()

    def add(self, name, shape, numbers):
        # As the official converter keeps them.
        wide = len(shape) == 1 or name.endswith("ffn_gate_inp.weight")
        self.items.append((name, tuple(shape), F32 if wide else BF16, numbers))

    def one(self, name, source):
        self.add(name, self.checkpoint.entries[source][1], lambda: self.checkpoint.bits(source))

    def experts(self, name, source, count):
        shape = self.checkpoint.entries[source.replace("*", "0")][1]
        self.add(name, (count, *shape), lambda: np.stack(
            [self.checkpoint.bits(source.replace("*", str(e))) for e in range(count)]))

    def latent(self, prefix, source):
        """kv_b, a head each: W_UK transposed, and W_UV."""
        c = self.checkpoint.config
        heads, nope, v, kv = (c[key] for key in (
            "num_attention_heads", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank"))

        def both():
            return self.checkpoint.bits(source).reshape(heads, nope + v, kv)

        self.add(prefix + "attn_k_b.weight", (heads, kv, nope),
                 lambda: both()[:, :nope].transpose(0, 2, 1))
        self.add(prefix + "attn_v_b.weight", (heads, v, kv), lambda: both()[:, nope:])

    def layer(self, number):
        before, prefix = f"model.layers.{number}.", f"blk.{number}."
        for ours, theirs in NAMES.items():
            if before + ours in self.checkpoint.entries:
                self.one(prefix + theirs, before + ours)
        if before + "self_attn.kv_b_proj.weight" in self.checkpoint.entries:
            self.latent(prefix, before + "self_attn.kv_b_proj.weight")
        if before + "mlp.experts.0.gate_proj.weight" in self.checkpoint.entries:
            for part in ("gate", "up", "down"):
                self.experts(f"{prefix}ffn_{part}_exps.weight", f"{before}mlp.experts.*.{part}_proj.weight",
                             self.checkpoint.config["n_routed_experts"])  # fmt: skip


def describe(writer, c):
    writer.add_vocab_size(c["vocab_size"])
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_rope_freq_base(c["rope_theta"])
    writer.add_tokenizer_model("none")
    if "kv_lora_rank" not in c:
        writer.add_head_count_kv(c["num_key_value_heads"])
        writer.add_rope_dimension_count(c["head_dim"])
        writer.add_key_length(c["head_dim"])
        writer.add_value_length(c["head_dim"])
        return
    rope = c["qk_rope_head_dim"]
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(rope)
    writer.add_key_length(c["kv_lora_rank"] + rope)
    writer.add_value_length(c["kv_lora_rank"])
    writer.add_key_length_mla(c["qk_nope_head_dim"] + rope)
    writer.add_value_length_mla(c["v_head_dim"])
    writer.add_q_lora_rank(c["q_lora_rank"])
    writer.add_kv_lora_rank(c["kv_lora_rank"])
    writer.add_leading_dense_block_count(c["first_k_dense_replace"])
    writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
    writer.add_expert_count(c["n_routed_experts"])
    writer.add_expert_used_count(c["num_experts_per_tok"])
    writer.add_expert_shared_count(c["n_shared_experts"])
    writer.add_expert_weights_scale(c["routed_scaling_factor"])
    writer.add_expert_weights_norm(c["norm_topk_prob"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def main(folder, path):
    checkpoint = Checkpoint(Path(folder))
    config = checkpoint.config
    plan = Plan(checkpoint)
    for ours, theirs in ENDS.items():
        plan.one(theirs, ours)
    for number in range(config["num_hidden_layers"]):
        plan.layer(number)

    unfinished = path + ".part"
    architecture = "deepseek2" if "kv_lora_rank" in config else "llama"
    writer = gguf.GGUFWriter(unfinished, architecture)
    describe(writer, config)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for name, shape, kind, _ in plan.items:
        size = int(np.prod(shape)) * (4 if kind == F32 else 2)
        writer.add_tensor_info(name, shape, np.dtype(np.float32), size, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, _, kind, numbers in plan.items:
        bits = np.ascontiguousarray(numbers())
        if kind == F32:
            bits = (bits.astype(np.uint32) << 16).view(np.float32)
        writer.write_tensor_data(bits)
    writer.close()
    Path(unfinished).rename(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
