"""golden.py DIR: writes DIR/golden.json, what transformers (float32, on the weights as stored) answers, as
tests/golden/make_golden.py does for its checkpoints."""
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

import chat

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))
import make_golden  # noqa: E402

MAX_TOKENS = 120

# What the user asks, turn by turn, after the system prompt.
CONVERSATIONS = [
    ("", ["What is brandy?"]), ("", ["Define valet."]), ("", ["What does sensitive mean?"]),
    ("", ["electronics"]), ("", ["define rush"]), ("", ["Explain the word chicken."]),
    ("", ["What is a river?"]), ("", ["what is an apple"]), ("", ['What is "democracy"?']),
    ("", ["Tell me what Winter means."]),
    ("You are a helpful assistant.", ["What does generous mean?"]),
    ("You are a dictionary. Answer briefly.", ["What is a teacher?"]),
    ("", ["What is music?", "And quickly?"]),
    ("You are a helpful assistant.", ["Hello!", "What is a garden?", "thank you"]),
    ("", ["Hi"]), ("", ["Who are you?"]), ("", ["What is a florp?"]),
]


def record(model, tok, system, questions):
    """Asks all the questions of a conversation; what the last one is answered, with the messages."""
    messages = [{"role": "system", "content": system}] if system else []
    turns = []
    for i, question in enumerate(questions):
        prompt = chat.prompt_ids(tok, system, [*turns, (question, None)])
        answer = greedy(model, prompt)
        text = tok.decode(answer, skip_special_tokens=False)
        messages.append({"role": "user", "content": question})
        if i + 1 < len(questions):
            content = text.split("</think>")[-1].removesuffix("<｜end▁of▁sentence｜>").strip()
            messages.append({"role": "assistant", "content": content})
            turns.append((question, content))
    [out] = make_golden.answers(model, [prompt], len(answer))
    return dict(out, question=questions[-1], messages=messages, text=text)


@torch.no_grad()
def greedy(model, prompt):
    ids = list(prompt)
    while len(ids) < len(prompt) + MAX_TOKENS and ids[-1] != chat.EOS:
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt):]


def main():
    folder = Path(sys.argv[1])
    config = json.loads((folder / "config.json").read_text())
    model = make_golden.load_reference(config, load_file(folder / "model.safetensors"))
    tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
    records = [record(model, tok, *conversation) for conversation in CONVERSATIONS]
    for r in records:
        print(r["question"], "->", repr(r["text"]), "least margin", min(r["margin"]))
    bf16 = make_golden.bf16_limits(model, records)
    reference = f"transformers {transformers.__version__}, torch {torch.__version__}, float32"
    # One line a record, so that a difference is readable.
    body = ",\n".join(json.dumps(r, ensure_ascii=False) for r in records)
    (folder / "golden.json").write_text(
        f'{{"reference": "{reference}", "bf16": {json.dumps(bf16)}, "prompts": [\n{body}\n]}}\n')
    print(bf16)


if __name__ == "__main__":
    main()
