"""The chat template as ids, and batches of them."""
import torch

import structured

BOS, EOS, PAD, USER, ASSISTANT, THINK = 0, 1, 2, 3, 4, 5


def encode(tok, text):
    return tok.encode(text, add_special_tokens=False).ids


def prompt_ids(tok, system, turns):
    """The prompt up to where the model goes on; `turns` as in talk.Example."""
    text = system
    for question, answer in turns:
        told = isinstance(question, structured.Result)
        text += f"<｜tool▁output▁begin｜>{question}<｜tool▁output▁end｜>" if told else f"<｜User｜>{question}"
        text += "<｜Assistant｜>"
        text += "<think>\n" if answer is None else answer + "<｜end▁of▁sentence｜>"
    return [BOS, *encode(tok, text)]


def answer_ids(tok, think, answer):
    return [*encode(tok, f"{think}\n</think>\n\n{answer}"), EOS]


def ids_of(tok, example):
    """-> prompt, answer"""
    prompt = prompt_ids(tok, example.system, example.turns)
    answer = answer_ids(tok, example.think, example.answer)
    given = len(answer_ids(tok, example.think, example.given)) - 1 if example.given else 0
    return prompt + answer[:given], answer[given:]


def length(pair):
    return len(pair[0]) + len(pair[1])


def rounded(number, step):
    """Up to a multiple: shapes of few sizes are faster, as a new one costs a new kernel."""
    return -(-number // step) * step


def padded(pairs):
    """(prompt, answer) pairs -> ids [b, t], and row and column of each token of the answers."""
    ids = torch.full((len(pairs), rounded(max(map(length, pairs)), 8)), PAD)
    rows, columns = [], []
    for i, (prompt, answer) in enumerate(pairs):
        ids[i, :len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        rows += [i] * len(answer)
        columns += range(len(prompt), len(prompt) + len(answer))
    return ids, torch.tensor(rows), torch.tensor(columns)
