"""The demo model over HTTP with workers on a device, and one of them killed."""

import time
from contextlib import contextmanager

import running
from running import DEMO, Cluster
from steps import Failed, NotMeasured
from streams import Streams, difference


def request(key, tokens):
    """Sampled hot and past every end: there a changed bit changes tokens."""
    body = {"prompt": "Define blorft.", "max_tokens": tokens, "temperature": 1, "seed": key,
            "ignore_eos": True, "stream": True, "return_token_ids": True}  # fmt: skip
    return {"key": key, "path": "/v1/completions", "body": body}


@contextmanager
def cluster(devices, seconds):
    """A ready cluster with a worker for each device, and its workers."""
    if not running.TROUPE.exists():
        raise NotMeasured(f"there is no program {running.TROUPE}: only kernels are built here")
    with Cluster() as cluster:
        cluster.head(DEMO, "--min-devices", len(devices), "--numerics", "bf16")
        cluster.wait_answers(seconds)
        workers = [cluster.worker("--device", device, threads=2) for device in devices]
        end = time.monotonic() + seconds
        while cluster.state() != "ready":
            for device, worker in zip(devices, workers):
                if worker.popen.poll() is not None:
                    lines = worker.log().strip().splitlines() or ["it said nothing"]
                    raise NotMeasured(f"a worker with --device {device} ended: {lines[-1][:200]}")
            if time.monotonic() > end:
                raise Failed(f"no cluster of {devices} within {seconds:.0f} s")
            time.sleep(0.05)
        yield cluster, workers


def tokens_a_second(stream):
    times = stream.times
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 2 else 0.0


def answers_of(devices, requests, seconds):
    """{key: answer}, and how fast one request alone is."""
    end = time.monotonic() + seconds
    with cluster(devices, seconds) as (served, _):
        alone = Streams(served, requests[:1]).streams[0].wait(end - time.monotonic())
        streams = Streams(served, requests).streams
        for stream in (alone, *streams):
            stream.wait(end - time.monotonic())
            if stream.error is not None:
                raise Failed(f"a request failed: {stream.error}")
        return {s.request["key"]: s.answer for s in streams}, tokens_a_second(alone)


def demo(device, tokens, seconds):
    """Tokens of the device and of a CPU are the same; how fast both are. Also the CPU's answers."""
    requests = [request(key, tokens) for key in range(4)]
    expected, cpu_speed = answers_of(["cpu"], requests, seconds / 2)
    answers, speed = answers_of([device], requests, seconds / 2)
    for key, answer in answers.items():
        if wrong := difference(expected[key], answer):
            raise Failed(f"request {key} has other tokens than on a CPU: {wrong}")
    return (f"the tokens of a CPU; one sequence {speed:.1f} tokens/s, "
            f"on the CPU {cpu_speed:.1f}, {speed / cpu_speed:.2f} of it"), expected  # fmt: skip


def killed(device, tokens, expected, seconds):
    """A device's worker is killed under load, and a CPU's goes on with the same tokens."""
    end = time.monotonic() + seconds
    requests = [request(key, tokens) for key in expected]
    with cluster([device, "cpu"], seconds / 2) as (served, workers):
        streams = Streams(served, requests).flow(2, seconds / 3)
        workers[0].kill()
        at = time.monotonic()
        streams.assert_unchanged(expected, end - time.monotonic())
        stall = streams.stall(at)
    return f"{len(requests)} requests in flight, all tokens unchanged, longest wait {stall * 1e3:.0f} ms"
