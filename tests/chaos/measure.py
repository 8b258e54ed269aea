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
        """The longest gap between tokens of each stream that had one: a gap counts if some of it is after
        `begin` and it began before `end`. What passed before `begin` is not the fault's."""
        stalls = []
        for _, *times in self.streams:
            if len(times) < 2 or times[-1] <= begin or times[0] >= end:
                continue
            at = max(1, bisect.bisect_right(times, begin))
            longest = 0
            while at < len(times) and times[at - 1] < end:
                longest = max(longest, times[at] - max(times[at - 1], begin))
                at += 1
            stalls.append(longest)
        return stalls

    def first_waits(self, begin, end):
        """From `begin` to the first token, of those that waited for it then or began to."""
        return [
            times[1] - max(times[0], begin) for times in self.streams
            if len(times) > 1 and times[0] < end and times[1] > begin
        ]  # fmt: skip

    def gaps(self, begin=-math.inf, end=math.inf):
        """All gaps between tokens of a stream in that time, the wait for the first left out."""
        return [
            b - a for times in self.streams for a, b in zip(times[1:], times[2:]) if begin <= a and b <= end
        ]


def next_tokens(records, at):
    """From then until the next token, of each stream that had been asked for and was not at its end. Of an
    answer that was asked for again there is only the last try: what came before is not known to have come."""
    waits = []
    for record in records:
        if not record["streamed"] or not record["start"] <= at < record["end"]:
            continue
        arrivals = (record["start"] + ticks / 10000 for ticks in record["arrivals"])
        waits += [next((time - at for time in arrivals if time > at), record["end"] - at)]
    return waits


def row(name, values, promise_s=None, never=0):
    """A line of a report. `never`: how many of the values stand for something that did not come at all."""
    over = sum(value > promise_s for value in values) if promise_s is not None else 0
    return {"name": name, **distribution(values), "promise": promise_s, "over": over, "never": never}


def verdict(row):
    """Judged by the longest: what is promised is promised each time."""
    if row["promise"] is None:
        return ""
    if not row["count"]:
        return "not measured"
    never = f", {row['never']} never" if row["never"] else ""
    return f"over ({row['over']} of {row['count']}{never})" if row["over"] else "kept"


def settle(counts, head_failed):
    """The counts of a load's clients, corrected by what the head says of itself.

    Whoever is told to come again later has lost nothing, unless the head had accepted the request and
    failed it: the head counts those and no others."""
    hidden = max(0, head_failed - counts["failed"])
    return {**counts, "failed": counts["failed"] + hidden, "refused": max(0, counts["refused"] - hidden)}
