"""Accelerators that fail or go, beside processors: a GPU's twin that is told to. No token changes."""

import concurrent.futures
import re

import pytest

from promises import ratio
from recovery import SMALL
from running import DEMO, TESTING, TROUPE, Cluster, float32_bits, generate, run, wait_until

TOKENS = 12


def answer(cluster, key):
    body = {"prompt": [0, 105, 103, 96 + key, 101], "max_tokens": TOKENS, "temperature": 1, "seed": key,
            "ignore_eos": True, "return_token_ids": True}  # fmt: skip
    return cluster.complete(**body)["choices"][0]["token_ids"]


def start(cluster, env=None, device="cuda-twin"):
    """Two processors and a twin. Who fails takes experts along that others have, too."""
    cluster.head(DEMO, *SMALL, "--min-devices", 3, "--redundant-experts", 32, "--numerics", "bf16")
    cluster.wait_joinable()
    for _ in range(2):
        cluster.worker()
    twin = cluster.start("worker", "--head", f"127.0.0.1:{cluster.control_port}", "--threads", 1,
                         "--device", device, "--device-memory", "2GiB", env=env or {},
                         program=TESTING)  # fmt: skip
    cluster.wait_ready()
    return twin, next(node for node in cluster.status()["nodes"] if node["pid"] == twin.pid)


def used_devices(cluster):
    status = cluster.status()
    used = {slot["device"] for layer in status["experts"]["placement"] for slot in layer["slots"]}
    return used | {shard["device"] for replica in status["replicas"] for shard in replica["shards"]}


def answers_until(cluster, over, seconds):
    """Of eight at a time, again and again; all are the same each time."""
    first = {}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        def look():
            for key, tokens in enumerate(pool.map(lambda k: answer(cluster, k), range(8))):
                assert first.setdefault(key, tokens) == tokens and len(tokens) == TOKENS
            return over()

        found = wait_until(look, "what the test waits for", seconds)
    return first, found


@pytest.mark.parametrize("failure, words", [
    ("launch:4000", "touched memory that is not its own"),
    pytest.param("ecc:4000", r"could not be corrected \(ECC\)", marks=pytest.mark.long),
    pytest.param("lost:4000", "fallen off the bus", marks=pytest.mark.long),
])  # fmt: skip
def test_a_device_that_fails_is_taken_out_and_its_node_stays(cluster, failure, words):
    twin, node = start(cluster, {"TROUPE_TEST_DEVICE": failure})

    def told():
        return [e["text"] for e in cluster.status()["events"] if e["kind"] == "device_failed"]

    expected, texts = answers_until(cluster, told, 60)
    assert node["id"] in texts[0] and re.search(words, texts[0]), texts
    wait_until(lambda: not any(device.startswith(node["id"] + "/") for device in used_devices(cluster)),
               "nothing is on the failed device")  # fmt: skip
    assert {key: answer(cluster, key) for key in expected} == expected
    assert twin.popen.poll() is None
    assert node["id"] in {n["id"] for n in cluster.status()["nodes"]}
    assert cluster.status()["requests"]["failed"] == 0


@pytest.mark.long
def test_a_device_that_hangs_is_taken_out_and_its_node_goes_on_with_the_other(cluster):
    """It is waited for until its deadline. The node's other device speaks for it meanwhile."""
    twin, node = start(cluster, {"TROUPE_TEST_DEVICE": "hang:4000"}, "cuda-twin:0,1")
    hung, other = f"{node['id']}/0", f"{node['id']}/1"
    assert hung in used_devices(cluster)

    def told():
        return [e["text"] for e in cluster.status()["events"] if e["kind"] == "device_failed"]

    expected, texts = answers_until(cluster, told, 60)
    assert len(texts) == 1 and hung in texts[0] and "has not ended within 5 s" in texts[0], texts
    wait_until(lambda: hung not in used_devices(cluster), "nothing is on the device that hangs")
    assert {key: answer(cluster, key) for key in expected} == expected
    assert other in used_devices(cluster)
    assert twin.popen.poll() is None
    now = {n["id"]: n for n in cluster.status()["nodes"]}[node["id"]]
    assert now["incarnation"] == node["incarnation"]  # it is the same life: its lease was kept
    assert cluster.status()["requests"]["failed"] == 0
    assert "lease is not renewed" not in twin.log()


@pytest.mark.long
def test_a_device_that_hangs_alone_is_a_hung_node_until_it_has_failed(cluster):
    twin, node = start(cluster, {"TROUPE_TEST_DEVICE": "hang:4000"})

    def lost():
        return [e["text"] for e in cluster.status()["events"] if e["kind"] == "node_lost"]

    expected, texts = answers_until(cluster, lost, 60)
    assert node["id"] in texts[0], texts
    assert {key: answer(cluster, key) for key in expected} == expected
    assert cluster.status()["requests"]["failed"] == 0
    wait_until(lambda: "has not ended within 5 s" in twin.log(), "the device fails by its deadline")


@pytest.mark.long
def test_a_device_that_becomes_slow_is_asked_less_and_its_host_is_not(cluster):
    """Its threads have all of their processors: only the device's own clock tells."""
    twin, node = start(cluster, {"TROUPE_TEST_DEVICE": "slow:6000"}, "cuda-twin:0,1")

    def slow():
        status = cluster.status()
        return {f"{n['id']}/{i}" for n in status["nodes"] for i, d in enumerate(n["devices"]) if d["slow"]}

    device = f"{node['id']}/0"
    expected, found = answers_until(cluster, lambda: found if device in (found := slow()) else None, 120)
    # A busy machine slows others too.
    ratio("devices that nothing makes slow, and are taken for it", len(found - {device}), 0, broken=10)
    texts = [e["text"] for e in cluster.status()["events"] if e["kind"] == "device_slow"]
    assert any(device in text and "as long as at its best" in text for text in texts), texts
    assert {key: answer(cluster, key) for key in expected} == expected
    assert cluster.status()["requests"]["failed"] == 0


@pytest.fixture(scope="module")
def takes_until_proven(troupe):
    """How often a twin takes memory until its kernels have proven themselves, found by halves."""
    with Cluster() as cluster:
        cluster.head(DEMO, *SMALL, "--min-devices", 2)
        cluster.wait_joinable()
        return first_that(lambda takes: is_proven(cluster, takes), 4096)


def is_proven(cluster, takes):
    """Whether a twin that is refused memory after that gets as far as to seek its head, and none is there."""
    worker = cluster.start("worker", "--head", "127.0.0.1:1", "--threads", 1, "--device", "cuda-twin",
                           "--device-memory", "2GiB",
                           env={"TROUPE_TEST_DEVICE": f"memory:{takes}"}, program=TESTING)  # fmt: skip
    seeks = wait_until(lambda: ("Seeking" in worker.log() and "seeks") or worker.popen.poll(),
                       "it seeks the head, or has too little memory")  # fmt: skip
    worker.kill()
    assert seeks == "seeks" or "too little memory to answer questions" in worker.log(), worker.log()
    return seeks == "seeks"


def first_that(holds, enough):
    few = 0
    while few < enough:
        middle = (few + enough) // 2
        few, enough = (few, middle) if holds(middle) else (middle + 1, enough)
    return enough


@pytest.mark.long
# The demo's weights and cache take some 160, and its first step's rooms a dozen more.
@pytest.mark.parametrize("later", [
    pytest.param(40, id="while it loads"),
    pytest.param(164, id="in its first step"),
])  # fmt: skip
def test_memory_that_runs_out_for_once_costs_no_request(cluster, takes_until_proven, later):
    twin, node = start(cluster, {"TROUPE_TEST_DEVICE": f"memory:{takes_until_proven + later}"})
    passes = iter(range(3))
    expected, _ = answers_until(cluster, lambda: next(passes) == 2, 60)
    assert twin.popen.poll() is None
    assert node["id"] in {n["id"] for n in cluster.ready_nodes()}
    assert cluster.status()["requests"]["failed"] == 0
    twin.popen.kill()
    assert {key: answer(cluster, key) for key in expected} == expected


def test_a_worker_with_an_accelerator_is_killed_and_processors_go_on(cluster):
    twin, node = start(cluster)
    assert any(device.startswith(node["id"] + "/") for device in used_devices(cluster))
    killed = []

    def after_the_loss():
        if not killed:
            killed.append(twin.popen.kill())
            return False
        return not any(device.startswith(node["id"] + "/") for device in used_devices(cluster))

    expected, _ = answers_until(cluster, after_the_loss, 60)
    assert {key: answer(cluster, key) for key in expected} == expected
    assert cluster.status()["requests"]["failed"] == 0


def test_what_does_not_fit_is_refused_before_it_is_placed(cluster):
    up = cluster.up(DEMO, "--device", "cuda-twin", "--device-memory", "4MiB", ready=False, program=TESTING)
    assert up.exit_code() == 1
    assert re.search(r"lacks \d+ bytes", up.log()), up.log()


def test_a_device_that_is_of_no_use_ends_the_cluster_that_waits_for_it(cluster):
    up = cluster.up(DEMO, "--device", "cuda-twin", "--device-memory", "256KiB", ready=False, program=TESTING)
    assert up.exit_code() == 1
    assert "too little memory to answer questions" in up.log(), up.log()
    assert re.search(r"worker-\d has ended 3 times before the cluster could serve", up.log()), up.log()


def test_a_failure_that_makes_no_sense_is_refused(cluster):
    cluster.head(DEMO, *SMALL)
    cluster.wait_joinable()
    for text in ("abacus", "launch:soon", "ecc:1:2"):
        worker = cluster.start("worker", "--head", f"127.0.0.1:{cluster.control_port}",
                               env={"TROUPE_TEST_DEVICE": text}, program=TESTING)  # fmt: skip
        assert worker.exit_code() == 2
        assert "TROUPE_TEST_DEVICE" in worker.log()


def test_the_driver_tells_how_a_gpu_is_and_a_memory_error_takes_it_out(cluster, tmp_path):
    """The driver's library is a double, which reads what it says from a file."""
    said = tmp_path / "said"

    def says(text):
        said.with_suffix(".next").write_text(text)
        said.with_suffix(".next").rename(said)

    says("utilization 37 temperature 64 ecc 5 throttle 0x40")
    library = TROUPE.parent / "tests" / "actors" / "device" / "libnvml_double.so"
    twin, node = start(cluster, {"TROUPE_TEST_NVML": str(library), "NVML_DOUBLE": str(said)})

    def device():
        (found,) = next(n for n in cluster.status()["nodes"] if n["id"] == node["id"])["devices"]
        return found

    wait_until(lambda: "temperature_c" in device(), "the driver is asked")
    assert device()["temperature_c"] == 64 and device()["ecc_errors"] == 5
    assert "too hot" in device()["throttled"] and device()["name"] == "the twin of a GPU"
    assert abs(device()["utilization"] - 0.37) < 1e-6
    text = run("status", env=cluster.env).stdout
    assert "64 °C" in text and "too hot" in text and "5 memory errors" in text, text

    says("utilization 37 temperature 64 ecc 6")
    expected, _ = answers_until(
        cluster,
        lambda: not any(d.startswith(node["id"] + "/") for d in used_devices(cluster)),
        60,
    )
    assert "ECC" in device()["failed"]
    assert {key: answer(cluster, key) for key in expected} == expected
    assert twin.popen.poll() is None and cluster.status()["requests"]["failed"] == 0


@pytest.mark.long
def test_tensor_cores_answer_alike_however_they_are_placed_and_no_processor_joins_them(cluster):
    words = ("--numerics", "cuda_mma", "--temperature", 0, "--max-tokens", TOKENS, "--ignore-eos")
    prompt = [0, 105, 103, 99, 101]
    alone = generate(DEMO, "--device", "cuda-twin", "--prompt-ids", ",".join(map(str, prompt)), *words,
                     program=TESTING)  # fmt: skip
    cluster.head(DEMO, "--min-devices", 2, "--tensor-parallel-size", 2, "--numerics", "cuda_mma")
    cluster.wait_answers()
    for _ in range(2):
        cluster.worker("--device", "cuda-twin", "--device-memory", "1GiB", program=TESTING)
    cluster.wait_ready()
    choice = cluster.complete(
        prompt, max_tokens=TOKENS, temperature=0, ignore_eos=True, return_token_ids=True, logprobs=0
    )["choices"][0]
    assert choice["token_ids"][-TOKENS:] == alone["tokens"]
    told = choice["logprobs"]["token_logprobs"][-TOKENS:]
    assert float32_bits(told) == float32_bits(alone["token_logprobs"])
    processor = cluster.worker()
    assert processor.exit_code() == 1
    assert "cuda_mma" in processor.log()


SAMPLINGS = [
    {"temperature": 0, "repetition_penalty": 1.3, "logprobs": 5},
    {"temperature": 1.5, "top_k": 40, "top_p": 0.9},
    {"temperature": 2, "min_p": 0.02, "presence_penalty": 0.7, "frequency_penalty": 0.4, "logprobs": 2},
    {"temperature": 3, "top_p": 0.99, "repetition_penalty": 0.8, "frequency_penalty": -0.5},
    {"temperature": 1, "logprobs": 3, "echo": True},
]  # fmt: skip


@pytest.mark.long
def test_whatever_is_asked_of_sampling_a_twin_answers_as_a_processor_does():
    def all_answers(*device, program=TROUPE):
        with Cluster() as cluster:
            cluster.head(DEMO, "--numerics", "bf16")
            cluster.wait_answers()
            cluster.worker(*device, program=program)
            cluster.wait_ready()

            def choice(number):
                asked = {"max_tokens": TOKENS, "ignore_eos": True, "return_token_ids": True, "seed": number}
                return cluster.complete([0, 105, 103, 99], **asked, **SAMPLINGS[number])["choices"][0]

            with concurrent.futures.ThreadPoolExecutor(len(SAMPLINGS)) as pool:
                return list(pool.map(choice, range(len(SAMPLINGS))))

    by_processor = all_answers()
    by_twin = all_answers("--device", "cuda-twin", "--device-memory", "1GiB", program=TESTING)
    assert by_twin == by_processor
    assert len({tuple(choice["token_ids"][-TOKENS:]) for choice in by_twin}) == len(SAMPLINGS)
    assert all((choice["logprobs"] is not None) == ("logprobs" in asked)
               for choice, asked in zip(by_twin, SAMPLINGS))  # fmt: skip
