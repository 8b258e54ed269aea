"""`troupe bench throughput` and `troupe bench latency`, in their own process."""

import json

import pytest

from running import DEMO, V3, run


def bench(kind, *words, model=DEMO):
    done = run("bench", kind, "--model", model, "--log-level", "warn", *words, seconds=120)
    return done


def test_throughput_counts_what_was_asked(tmp_path):
    result = tmp_path / "result.json"
    words = ["--input-len", 20, "--output-len", 8, "--num-prompts", 30, "--seed", 3]
    done = bench("throughput", *words, "--json", "--output-json", result)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads(result.read_text())
    assert set(told) == {"elapsed_time", "num_requests", "total_num_tokens", "requests_per_second",
                         "tokens_per_second"}  # fmt: skip
    assert told["num_requests"] == 30 and told["total_num_tokens"] == 30 * 28
    assert told["tokens_per_second"] == pytest.approx(30 * 28 / told["elapsed_time"])
    done = bench("throughput", *words)
    assert done.stdout.splitlines()[1:] == ["Total num prompt tokens:  600", "Total num output tokens:  240"]
    assert done.stdout.startswith("Throughput: ")


def test_throughput_of_a_model_without_a_tokenizer_and_of_several_choices():
    done = bench("throughput", "--input-len", 8, "--output-len", 4, "--num-prompts", 6, "--n", 2, "--json",
                 model=V3)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["total_num_tokens"] == 6 * (8 + 2 * 4)


def test_throughput_of_conversations(tmp_path):
    said = [{"conversations": [{"from": "human", "value": f"What is a river, number {i}?"},
                               {"from": "gpt", "value": "A large natural stream of water."}]}
            for i in range(3)]  # fmt: skip
    file = tmp_path / "sharegpt.json"
    file.write_text(json.dumps(said))
    words = ["--dataset", f"sharegpt:{file}", "--num-prompts", 5, "--output-len", 6]
    done = bench("throughput", *words)
    assert done.returncode == 0, done.stderr
    assert "Total num output tokens:  30" in done.stdout


def test_latency_times_each_batch(tmp_path):
    result = tmp_path / "latency.json"
    done = bench("latency", "--input-len", 40, "--output-len", 3, "--batch-size", 2, "--num-iters", 4,
                 "--num-iters-warmup", 1, "--output-json", result)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Avg latency: ") and "99% percentile latency: " in done.stdout
    told = json.loads(result.read_text())
    assert len(told["latencies"]) == 4 and all(second > 0 for second in told["latencies"])
    assert set(told["percentiles"]) == {"10", "25", "50", "75", "90", "99"}
    assert min(told["latencies"]) <= told["percentiles"]["50"] <= max(told["latencies"])
    assert told["avg_latency"] == pytest.approx(sum(told["latencies"]) / 4)


@pytest.mark.parametrize("kind, words, code, told", [
    ("throughput", ["--dataset", "poems"], 2, "random or sharegpt:FILE, not 'poems'"),
    ("throughput", ["--dataset-path", "x"], 2, "did you mean '--dataset'?"),
    ("throughput", ["--dataset", "sharegpt:/nowhere"], 1, "/nowhere"),
    ("throughput", ["--input-len", 1_000_000], 2, "the context holds"),
    ("throughput", ["--num-prompts", 0], 2, "--num-prompts"),
    ("latency", ["--batch-size", 0], 2, "--batch-size"),
    ("latency", ["--num-iters", -1], 2, "--num-iters"),
])  # fmt: skip
def test_what_is_wrong_is_told_before_anything_is_measured(kind, words, code, told):
    done = bench(kind, *words)
    assert done.returncode == code and told in done.stderr, done.stderr
    assert done.stdout == ""


def test_a_result_that_cannot_be_written_is_told():
    done = bench("latency", "--input-len", 2, "--output-len", 1, "--batch-size", 1, "--num-iters", 1,
                 "--num-iters-warmup", 0, "--output-json", "/nowhere/result.json")  # fmt: skip
    assert done.returncode == 1 and "/nowhere/result.json" in done.stderr
    assert done.stdout.startswith("Avg latency")
