"""Weights take the memory of their bytes, however many and small they are."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from running import ROOT, Cluster

CONFIG = json.loads((ROOT / "configs" / "bench" / "small-layers.json").read_text())
WIDTHS = {"hidden_size": 512, "moe_intermediate_size": 256, "num_hidden_layers": 4}


def served(troupe, folder, experts, form):
    """Bytes of the weights, and of what is resident of the worker that serves them."""
    config = folder / f"{experts}.json"
    config.write_text(json.dumps({**CONFIG, **WIDTHS, "n_routed_experts": experts}))
    model = folder / f"model-{experts}"
    subprocess.run([troupe, "bench", "make-model", "--config", config, "--out", model, "--seed", "1",
                    "--format", form], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    with Cluster() as cluster:
        cluster.up(model, "--threads", 2, "--kv-cache-memory", "64MiB", workers=1)
        (node,) = cluster.status()["nodes"]
        status = Path(f"/proc/{node['pid']}/status").read_text()
    return sum(path.stat().st_size for path in model.glob("*.safetensors")), \
        int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # fmt: skip


@pytest.mark.long
def test_many_small_experts_take_no_more_than_their_bytes(troupe, tmp_path):
    for form in ("bf16", "fp8", "int4"):
        folder = tmp_path / form
        folder.mkdir()
        few, few_resident = served(troupe, folder, 8, form)
        many, many_resident = served(troupe, folder, 72, form)
        grown, resident = many - few, many_resident - few_resident
        print(f"{form}: {resident / 1e6:.1f} MB resident for {grown / 1e6:.1f} MB of weights")
        # Huge pages that are not full, and what is known of a tensor each.
        assert resident < 1.05 * grown + (4 << 20)
