"""What /metrics tells of a running cluster, and that the dashboard asks for nothing else."""

import json
import re
from pathlib import Path

import pytest

from running import DEMO, Cluster, get, post, run, wait_until

DASHBOARD = Path(__file__).parents[2] / "configs" / "deploy" / "grafana" / "troupe.json"
PROMQL = """sum max by on and rate increase changes quantile topk histogram_quantile""".split()


def names_in(text):
    """The names of all series."""
    return {re.match(r"[a-zA-Z_:][\w:]*", line)[0] for line in text.splitlines() if line[:1] not in ("", "#")}


def expressions(value):
    """All that the dashboard asks Prometheus for."""
    if isinstance(value, list):
        return [expr for item in value for expr in expressions(item)]
    if not isinstance(value, dict):
        return []
    own = [value[field] for field in ("expr", "definition") if field in value]
    return own + expressions(list(value.values()))


def asked_for(expr):
    """The series that an expression names: what is left without strings, labels, ranges and words."""
    expr = re.sub(r"label_values\((\S+), \w+\)", r"\1", expr)
    expr = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(by|on) \([^)]*\)', " ", expr)
    return set(re.findall(r"[a-zA-Z_:][\w:]*", expr)) - set(PROMQL)


@pytest.fixture(scope="module")
def told(server):
    status, answer = post(server.base_url, "/v1/completions", {"prompt": "A river", "max_tokens": 4})
    assert status == 200, answer
    return get(server.base_url, "/metrics")


def test_the_dashboard_asks_only_for_what_there_is(told):
    there = names_in(told)
    dashboard = expressions(json.loads(DASHBOARD.read_text()))
    asked = {name: expr for expr in dashboard for name in asked_for(expr)}
    # What has no series until the experts' load was measured, which takes a while.
    there |= set(re.findall(r"# TYPE (\S+)", told)) | {"troupe:expert_imbalance"}
    assert len(asked) >= 25
    assert not {name: expr for name, expr in asked.items() if name not in there}


def test_a_name_that_is_not_there_would_be_found():
    rate = 'sum by (le) (rate(troupe:no_such{model_name=~"$model"}[$__rate_interval]))'
    assert asked_for(rate) == {"troupe:no_such"}
    assert asked_for("process_nothing and on (instance) troupe:build_info{}") == {
        "process_nothing", "troupe:build_info"}  # fmt: skip


def test_phases_the_build_and_the_process_are_told(told):
    def value(series):
        return float(re.search(rf"^{re.escape(series)} (\S+)$", told, re.MULTILINE)[1])

    label = f'{{model_name="{DEMO.name}"}}'
    for phase in ("queue", "prefill", "decode", "inference"):
        assert value(f"troupe:request_{phase}_time_seconds_count{label}") >= 1
        assert f'troupe:request_{phase}_time_seconds_bucket{{model_name="{DEMO.name}",le="0.001"}}' in told
    # One that left before it was computed has no phases, only a time in all.
    parts = [value(f"troupe:request_{phase}_time_seconds_sum{label}") for phase in ("queue", "inference")]
    whole, count = (value(f"troupe:e2e_request_latency_seconds_{what}{label}") for what in ("sum", "count"))
    computed = value(f"troupe:request_inference_time_seconds_count{label}")
    assert sum(parts) == pytest.approx(whole) if computed == count else sum(parts) <= whole
    assert value(f"troupe:request_params_max_tokens_count{label}") >= 1
    version = run("--version").stdout.split()[-1]
    assert value(f'troupe:build_info{{model_name="{DEMO.name}",version="{version}"}}') == 1
    assert value("process_resident_memory_bytes") > 1e6 and value("process_start_time_seconds") > 1.6e9


@pytest.mark.parametrize("flags", [[], ["--expert-metrics"]], ids=["default", "asked for"])
def test_experts_are_series_only_when_asked_for(troupe, flags):
    with Cluster() as cluster:
        cluster.up(DEMO, *flags, workers=1)
        cluster.complete("A river", max_tokens=40, ignore_eos=True)
        # The layers' imbalance comes with the same counts.
        wait_until(lambda: "troupe:expert_imbalance{" in get(cluster.base_url, "/metrics"), "imbalance")
        told = get(cluster.base_url, "/metrics")
        assert ('troupe:expert_tokens_total{model_name="' in told) == bool(flags)
