"""The rules of the actors: who stands on whom, and what a machine may be."""

import re

from sources import code_only, includes, is_cpp, is_test, lines_of, types

# The folders of actors/ from the cellar to the roof. Each includes only what stands before it. What
# one actor tells another is in actors/interfaces.h, so that actors need not see each other.
#
#     base ─ interfaces.h ─┬─ device ─ layer_shard, expert_group, replica, node_agent ─┬─ worker ─┬─ api
#                          ├─ control ─────────────────────────────────────────────────┼──────────┤
#                          └─ frontend ─ metrics ─ supervisor, router ─ gateway ───────┴─ head ─ standby
ORDER = ["base", "interfaces.h", "control", "device", "frontend", "metrics", "layer_shard",
         "expert_group", "replica", "node_agent", "worker", "supervisor", "router", "gateway", "head",
         "standby", "api"]
# These decide; the others carry out. A machine of one does not see the machine of another.
DECIDE = {"supervisor", "router", "node_agent", "replica", "layer_shard", "expert_group"}


def actor_folders(sources):
    """No folder of actors/ includes one above it, nor one actor another."""
    for name, text in sources.items():
        if not name.startswith("actors/") or not is_cpp(name):
            continue
        here = name.split("/")[1]
        if here not in ORDER:
            yield f"{name}: actors/{here} has no place in the order of the folders"
            continue
        for header in includes(text):
            if not header.startswith("actors/"):
                continue
            there = header.split("/")[1]
            if there not in ORDER:
                yield f"{name} includes {header}, which has no place in the order of the folders"
            elif ORDER.index(there) > ORDER.index(here):
                yield f"{name} includes {header}: actors/{there} stands above actors/{here}"
            elif there != here and {there, here} <= DECIDE:
                yield f"{name} includes {header}: actors speak through actors/interfaces.h"


FIELDS_MAX = 15


def without_bodies(body):
    """The body of a class without those of its functions and of the types within it."""
    previous = None
    while previous != body:
        previous = body
        body = re.sub(r"(?<![=\w_\s])\s*\{[^{}]*\}"
                      r"|\b(?:const|noexcept|override|(?:struct|class) \w+)\s*\{[^{}]*\}", ";", body)
    return body


def field_names(body):
    names = []
    for line in without_bodies(body).split("\n"):
        while line != (line := re.sub(r"<[^<>]*>", "<>", line).replace("<>", "")):
            pass
        if re.match(r"^\s+(?:return|using|friend|static)\b", line) or "(" in re.split("[={]", line)[0]:
            continue
        declared = re.match(
            r"^\s+[\w:<].*?((?:\b\w+_(?:\s*=[^,;]*)?,\s*)*\b\w+_)\s*(?:\{.*\}|=.*)?;", line)
        if declared:
            names += re.findall(r"\b(\w+_)\b", re.sub(r"=[^,;]*", "", declared[1]))
    return names


def machine_fields(sources):
    """A machine, or a part of one, has few fields: it can be held in a head."""
    for name, text in sources.items():
        if not name.startswith("actors/") or not name.endswith(".h"):
            continue
        for full_name, body in types(text):
            if not re.search(r"\bstd::string violation\(", body):
                continue
            count = len(field_names(body))
            if count > FIELDS_MAX:
                yield f"{name}: {full_name} has {count} fields, {FIELDS_MAX} may be"


OUTSIDE = r"_clock::now|(?<![\w.:>])now\(\)|\bstd::(?:thread|mutex|atomic)\b|\bfstream\b|<caf/|random_device"


# What carries out, or computes, beside the machines.
HANDS = re.compile(r"_hands\.|/report_slot\.|/forward_|/expert_counter\.|/request_door\.|/cpu_device\.")


def pure_machines(sources):
    """Time, disk and randomness are passed in: what decides sees nothing else."""
    for name, text in sources.items():
        folder = name.split("/")[1] if name.startswith("actors/") else ""
        decides = folder in DECIDE or "std::string violation(" in sources.get(name[:-4] + ".h", "")
        if not is_cpp(name) or not folder or not decides or HANDS.search(name):
            continue
        for line in lines_of(code_only(text), OUTSIDE):
            yield f"{name}:{line}: a state machine gets time and the world passed in"


def one_definition(sources):
    """Two types of one name in one program are no C++, though it links."""
    seen = {}
    for name, text in sources.items():
        if not is_cpp(name) or is_test(name):
            continue
        for full_name, _ in types(text):
            if seen.setdefault(full_name, name) != name:
                yield f"{name}: {full_name} is defined in {seen[full_name]} as well"
