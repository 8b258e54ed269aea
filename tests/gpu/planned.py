"""What gpu_bench measured as files that `troupe plan --measured` takes, one for each numerics."""

import json
import re
from pathlib import Path

KINDS = Path(__file__).resolve().parent.parent.parent / "tools" / "troupe" / "plan" / "device_kinds.cpp"


def kind_of(gpu):
    """(name, numbers of its data sheet) that `troupe plan` knows a GPU by; None: it knows none.

    `gpu` is a line of nvidia-smi: name, driver, capability, "81559 MiB", ...
    """
    fields = [field.strip() for field in gpu.split(",")]
    words = re.sub(r"[^a-z0-9]", "", fields[0].lower())
    number = r"([\d.]+)"
    sheet = re.compile(rf'{{"([a-z0-9]+)-([^"]+)", (\d+), ceilings\({", ".join([number] * 6)}\)}}')
    memory = float(fields[3].split()[0])
    found = [(abs(int(m[3]) - memory), f"{m[1]}-{m[2]}", [float(m[i]) for i in range(4, 10)])
             for m in sheet.finditer(KINDS.read_text()) if m[1] in words]  # fmt: skip
    return min(found)[1:] if found else None


def files(bench, gpu):
    """{numerics: object}. What is not measured here (fma, network, link) is the data sheet's."""
    kind = kind_of(gpu) if gpu else None
    if kind is None:
        return {}
    name, (_, fma, _, _, network, link) = kind
    found = {}
    rows = []
    for line in bench.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # cut off
    figures = {row["row"]: row["value"] for row in rows if "value" in row}
    if not {"copy", "matmul, cuBLAS, bf16"} <= figures.keys():
        return {}
    for plan in [dict(row["plan"]) for row in rows if "plan" in row]:
        numerics = plan.pop("numerics")
        file = found.setdefault(numerics, {
            "device": name,
            "memory_bandwidth": figures["copy"] * 1e9,
            "compute": {"bf16": figures["matmul, cuBLAS, bf16"] * 1e12, "fma": fma * 1e12},
            **({"network": network * 1e9} if network else {}),
            "link": link * 1e9,
            "products": [],
        })  # fmt: skip
        if "attention" in plan:
            file[plan["attention"]] = {"rate": plan["rate"], "more_positions": 0}
            continue
        codes = plan.pop("codes")
        product = next((p for p in file["products"] if p["codes"] == codes), None)
        if product is None:
            product = {"codes": codes, "full_precision": False, "points": []}
            file["products"].append(product)
        product["points"].append(plan)
    return found
