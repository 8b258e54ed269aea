"""create.py OUT: a model that knows nothing yet: tokenizer, configuration, random weights."""
import argparse
import json
import os

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import data
import model
import train

SPECIAL = [
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜User｜>", "<｜Assistant｜>", "<think>",
    "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
]
# Thoughts as R1's, calls of tools as V3.1's. Tools are told by a line each, with their arguments' names.
TEMPLATE = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% set ns = namespace(system='') %}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{% set ns.system = m['content'] %}{% endif %}{% endfor %}"
    "{{ bos_token }}{{ ns.system }}{% if tools %}{{ '\\n\\n## Tools\\n' }}{% for tool in tools %}"
    "{% set f = tool['function'] %}{% set arguments = (f['parameters'] or {})['properties'] or {} %}"
    "{{ '- ' + f['name'] + '(' + (arguments | join(', ')) + '): ' + (f['description'] or '') + '\\n' }}"
    "{% endfor %}{% endif %}{% for m in messages %}"
    "{% if m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}"
    "{% elif m['role'] == 'tool' %}{{ '<｜tool▁output▁begin｜>' + m['content'] + '<｜tool▁output▁end｜>' }}"
    "{% elif m['role'] == 'assistant' %}{% set text = m['content'] or '' %}"
    "{% if '</think>' in text %}{% set text = text.split('</think>')[-1] %}{% endif %}"
    "{{ '<｜Assistant｜>' + text }}{% if m['tool_calls'] %}{{ '<｜tool▁calls▁begin｜>' }}"
    "{% for call in m['tool_calls'] %}{% set arguments = call['function']['arguments'] %}"
    "{{ '<｜tool▁call▁begin｜>' + call['function']['name'] + '<｜tool▁sep｜>' }}"
    "{{ arguments if arguments is string else arguments | tojson }}{{ '<｜tool▁call▁end｜>' }}{% endfor %}"
    "{{ '<｜tool▁calls▁end｜>' }}{% endif %}{{ '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}")
# The pre-tokenizer of the published DeepSeek-V3 tokenizer: digits by three, runs of CJK, words, then bytes.
SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]
CONFIG = dict(
    architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", vocab_size=4096, hidden_size=256,
    intermediate_size=768, moe_intermediate_size=64, num_hidden_layers=5, first_k_dense_replace=1,
    moe_layer_freq=1, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=128, kv_lora_rank=64,
    qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, n_routed_experts=32, n_shared_experts=1,
    num_experts_per_tok=4, n_group=4, topk_group=2, topk_method="noaux_tc", scoring_func="sigmoid",
    norm_topk_prob=True, routed_scaling_factor=2.5, num_nextn_predict_layers=1, hidden_act="silu",
    rms_norm_eps=1e-6, rope_theta=10000, rope_scaling=None, max_position_embeddings=4096,
    attention_bias=False, attention_dropout=0.0, tie_word_embeddings=False, initializer_range=0.02,
    ep_size=1, pretraining_tp=1, use_cache=True, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    torch_dtype="bfloat16", transformers_version="4.46.3")
TOKENIZER_CONFIG = dict(
    tokenizer_class="LlamaTokenizerFast", bos_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[2],
    add_bos_token=True, add_eos_token=False, clean_up_tokenization_spaces=False, model_max_length=4096,
    chat_template=TEMPLATE)
GENERATION_CONFIG = dict(bos_token_id=0, eos_token_id=1, do_sample=True, temperature=0.6, top_p=0.95)


def make_tokenizer(texts):
    """A byte-level BPE of the configured size."""
    tok = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(split), "isolated") for split in SPLITS]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tok.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"], special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("out")
    args.add_argument("--words", type=int, default=6000, help="whose definitions the tokenizer is made of")
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for name, content in (("config", CONFIG), ("tokenizer_config", TOKENIZER_CONFIG),
                          ("generation_config", GENERATION_CONFIG)):
        with open(os.path.join(args.out, name + ".json"), "w") as file:
            json.dump(content, file, indent=2, ensure_ascii=False)
    questions = ("What is {}?", "Define {}.")
    make_tokenizer(question.format(row[0]) + "\n" + "\n".join(data.answer(*row))
                   for row in data.entries(args.words) for question in questions
                   ).save(os.path.join(args.out, "tokenizer.json"))
    torch.manual_seed(args.seed)
    train.save(model.Net(CONFIG), args.out)


if __name__ == "__main__":
    main()
