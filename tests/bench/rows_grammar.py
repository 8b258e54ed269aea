"""What answers under a grammar cover and cost."""

import json
import subprocess
import sys
from pathlib import Path

from checkpoints import KEPT, ROOT
from rows import Line, Prompts, in_turns
from rows_cluster import seconds_a_token, serving

SCHEMAS = "https://github.com/guidance-ai/jsonschemabench"
# XGrammar's empirical coverage in the benchmark's paper (arXiv 2501.10868, its table of coverage), and
# the best of all engines there, which is Guidance's or llama.cpp's. XGrammar has none for Snowplow.
PUBLISHED = {"Glaiveai2K": (0.93, 0.96), "Github_easy": (0.79, 0.86), "Github_medium": (0.52, 0.69),
             "Github_hard": (0.28, 0.41), "Kubernetes": (0.07, 0.91), "WashingtonPost": (0.64, 0.94),
             "JsonSchemaStore": (0.33, 0.38), "Snowplow": (None, 0.82)}  # fmt: skip
# A list that no answer comes to the end of.
LIST = {"type": "array", "minItems": 5000, "items": {
    "type": "object", "additionalProperties": False, "required": ["id", "name", "tags", "ok"],
    "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 30},
                   "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
                   "ok": {"type": "boolean"}}}}  # fmt: skip


def schemas(how):
    """Of each split of JSONSchemaBench, what share of 100 drawn schemas is covered (schema_coverage.py)."""
    repository = KEPT / "jsonschemabench"
    if not repository.exists():
        done = subprocess.run(["git", "clone", "--quiet", "--depth", "1", SCHEMAS, repository])
        if done.returncode != 0:
            return [Line("JSONSchemaBench: schemas covered", None, 1, f"{SCHEMAS} could not be cloned")]
    words = [ROOT / "build/venv/bin/python", Path(__file__).with_name("schema_coverage.py"), repository]
    words += ["--schemas", "20" if how.rounds == 1 else "100"]  # all 11,306 take half an hour
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as told:
        return [covered(json.loads(line)) for line in told.stdout]


def covered(told):
    print(f"   {told['split']}", file=sys.stderr, flush=True)
    p50, p99 = told["compile_ms"]
    xgrammar, best = PUBLISHED.get(told["split"], (None, None))
    peers = f"; best published {best}" if best else ""
    return Line(f"JSONSchemaBench, {told['split']}: schemas covered", told["covered"] / told["schemas"],
                xgrammar or best or 0.5,
                f"{told['covered']} of {told['schemas']}{peers}; of {told['ended']} answers that ended "
                f"{told['wrong']} invalid; compiled in {p50:.1f} ms (p50), {p99:.0f} ms (p99)")  # fmt: skip


def ruled(how):
    """32 sequences under a schema, with a vocabulary of 129,280, beside the same without."""
    prompts = Prompts("v3-words")
    with serving("v3-words", 1, 2) as cluster:
        def spent(fields):
            return lambda: seconds_a_token(cluster, prompts, 32, how.decode_tokens, 1, **fields)

        found = in_turns(how.rounds, free=spent({}), held=spent({"guided_json": LIST}))
    free, held = (min(found[key]) for key in ("free", "held"))
    return [Line("32 sequences under a schema over the same without, vocabulary of 129,280",
                 free / held, 0.95, f"{32 / held:.1f} : {32 / free:.1f} tok/s")]  # fmt: skip
