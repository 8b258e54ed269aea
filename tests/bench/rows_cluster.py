"""Figures of several processes, over HTTP as clients see them."""

import contextlib
import time

from checkpoints import checkpoint, config
from rows import Line, Prompts, in_turns
from running import Cluster, at_once, get


def seconds_a_token(cluster, prompts, sequences, tokens, rounds, **fields):
    """Of one more token of so many sequences that run together: long answers less short ones."""
    def spent(count):
        asked = [prompts.next(16) for _ in range(sequences)]
        begun = time.perf_counter()
        at_once(lambda ids: cluster.complete(ids, max_tokens=count, temperature=1, ignore_eos=True,
                                             **fields), asked)  # fmt: skip
        return time.perf_counter() - begun
    spent(2)
    short, long = (min(spent(count) for _ in range(rounds)) for count in (4, 4 + tokens))
    return (long - short) / tokens


@contextlib.contextmanager
def serving(name, workers, threads, *flags):
    """A head and so many workers of so many threads."""
    with Cluster() as cluster:
        cluster.head(checkpoint(name), "--min-devices", workers, "--kv-cache-memory", "512MiB", *flags)
        cluster.wait_joinable()
        for _ in range(workers):
            cluster.worker(threads=threads)
        cluster.wait_ready(120)
        yield cluster


def of_workers(name, workers, threads, sequences, how, flags=()):
    """{sequences: seconds a token} of a head and so many workers of so many threads."""
    prompts = Prompts(name)
    with serving(name, workers, threads, *flags) as cluster:
        return {count: seconds_a_token(cluster, prompts, count, how.decode_tokens, how.rounds)
                for count in sequences}


def processes(how):
    two, one = of_workers("v3-bf16", 2, 1, (1, 16), how), of_workers("v3-bf16", 1, 2, (1, 16), how)
    goals = {1: 0.65, 16: 0.82}
    return [Line(f"two processes of one thread over one of two, {count} sequence{'s' * (count > 1)}",
                 one[count] / two[count], goal,
                 f"{count / two[count]:.1f} : {count / one[count]:.1f} tok/s")
            for count, goal in goals.items()]  # fmt: skip


def ranks(how):
    """The same where both processes share every layer."""
    two = of_workers("v3-bf16", 2, 1, (1, 16), how, ("--tensor-parallel-size", 2))
    one = of_workers("v3-bf16", 1, 2, (1, 16), how)
    return [Line("two tensor-parallel processes of one thread over one of two, "
                 f"{count} sequence{'s' * (count > 1)}", one[count] / two[count], goal,
                 f"{count / two[count]:.1f} : {count / one[count]:.1f} tok/s")
            for count, goal in ((1, 0.85), (16, 0.82))]  # fmt: skip


def journal(how):
    """What it costs that accepted requests outlive the head: two clusters side by side take turns."""
    prompts = Prompts("v3-bf16")
    with serving("v3-bf16", 1, 2) as kept, serving("v3-bf16", 1, 2, "--no-journal") as lost:
        def spent(cluster):
            return lambda: seconds_a_token(cluster, prompts, 32, how.decode_tokens, 1)

        found = in_turns(how.rounds, kept=spent(kept), lost=spent(lost))
    with_it, without = (min(found[key]) for key in ("kept", "lost"))
    return [Line("32 sequences with the journal over --no-journal", without / with_it, 0.98,
                 f"{32 / with_it:.1f} : {32 / without:.1f} tok/s")]


def layer_across(how):
    """A model whose arithmetic is next to nothing: what a step takes longer when half of each layer's
    experts are in another process."""
    name = "small-bf16"
    c = config(name)
    layers = c["num_hidden_layers"] - c["first_k_dense_replace"]
    across, alone = (of_workers(name, workers, 1, (1,), how)[1] for workers in (2, 1))
    value = (across - alone) / layers * 1e6
    return [Line("a MoE layer across processes, 1 row, us", value, 150,
                 f"{across * 1e3:.2f} ms a token in two processes, {alone * 1e3:.2f} in one; {layers} layers",
                 less_is_better=True)]


def settled_reads(cluster):
    """How often the weights of experts were read, once what nodes say of it changes no more."""
    known = None
    while True:
        lines = get(cluster.base_url, "/metrics").splitlines()
        reads = sum(float(line.split()[-1]) for line in lines if line.startswith("troupe:expert_reads_total"))
        if reads == known:
            return reads
        known = reads
        time.sleep(1)


def reads_of(replicas, sequences, how):
    """Of experts, for so many tokens more of sequences that replicas of one worker share out."""
    prompts = Prompts("v3-bf16")
    with serving("v3-bf16", 1, 2, "--data-parallel-size", replicas) as cluster:
        assert len(cluster.status()["replicas"]) == replicas

        def reads(count):
            asked = [prompts.next(16) for _ in range(sequences)]
            before = settled_reads(cluster)
            at_once(lambda ids: cluster.complete(ids, max_tokens=count, temperature=1, seed=ids[0],
                                                 ignore_eos=True), asked)  # fmt: skip
            return settled_reads(cluster) - before

        short, long = (reads(count) for count in (4, 4 + how.decode_tokens))
        return long - short


def experts_read(how):
    together, alone = (reads_of(replicas, 32, how) for replicas in (8, 1))
    return [Line("expert bytes read: 8 replicas x 4 sequences over one batch of 32", together / alone, 2,
                 f"{together:.0f} times an expert's weights, {alone:.0f} in one batch", less_is_better=True)]
