"""From records to figures: what was noticed when, and how long clients waited."""

import bisect
import json
import math


def percentile(values, share):
    """The smallest value that at least this share of them does not exceed; None of nothing."""
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def distribution(values):
    return {"count": len(values), "p50": percentile(values, 0.5), "p99": percentile(values, 0.99),
            "max": max(values, default=None)}  # fmt: skip


def read_records(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


class Arrivals:
    """When each stream's tokens came, in seconds of the monotonic clock."""

    def __init__(self, records):
        self.streams = [
            [record["start"]] + [record["start"] + at / 10000 for at in record["arrivals"]]
            for record in records
            if record["streamed"]
        ]

    def stalls(self, begin, end):
        """The longest gap of each stream that was waiting for a token at `begin` or in between: a gap
        counts if some of it is after `begin` and it began before `end`. What passed before `begin`
        is not the fault's."""
        stalls = []
        for times in self.streams:
            if times[-1] <= begin or times[0] >= end or len(times) < 2:
                continue
            at = bisect.bisect_right(times, begin)
            longest = 0
            while at < len(times) and (at == 0 or times[at - 1] < end):
                if at > 0:
                    longest = max(longest, times[at] - max(times[at - 1], begin))
                at += 1
            stalls.append(longest)
        return stalls

    def gaps(self, begin=-math.inf, end=math.inf):
        """All gaps between tokens of a stream in that time, the wait for the first left out."""
        return [
            b - a for times in self.streams for a, b in zip(times[1:], times[2:]) if begin <= a and b <= end
        ]


# One that is told later is about something else: a worker that hung before it was a member, say.
TOLD_WITHIN_S = 4


def noticed_in(fault, nodes, events):
    """Seconds from a fault to the event that tells of each lost node."""
    found = []
    for pid in fault["pids"]:
        node = nodes.get(pid)
        times = [
            event["time"] - fault["time"] for event in events
            if event["kind"] == "node_lost" and -0.002 <= event["time"] - fault["time"] < TOLD_WITHIN_S
            and event["text"].startswith(f"{node} ")
        ]  # fmt: skip
        if node and times:
            found.append(max(0, min(times)))
    return found


def serving_again_in(fault, events, until):
    """Seconds from a fault to the first event that says that the cluster serves in full again."""
    times = [
        event["time"] - fault["time"] for event in events
        if event["kind"] in ("ready", "recovered") and fault["time"] <= event["time"] <= until
    ]  # fmt: skip
    return min(times, default=None)
