"""Machines beside the one that a cluster's head is on, as network namespaces.

The head's machine is the private namespace that a test runs in (`network.private`): its interfaces are
bridges, and the networks behind them are what other machines are plugged into.
"""

import os
import subprocess

import running
from network import ip, tc

# Classic BPF, from the Ethernet header on: a TCP segment that begins a connection is a match.
BEGINS_CONNECTION = "7,48 0 0 23,21 0 4 6,48 0 0 47,84 0 0 18,21 0 1 2,6 0 0 4294967295,6 0 0 0"


def forward(*prefix):
    """Makes a router of the head's machine, or of the one that the prefix leads to."""
    subprocess.run([*prefix, "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)


class Machines:
    def __init__(self):
        self.made = []
        self.bridges = 0

    def network(self, *addresses):
        """An interface of the head's machine with these addresses ("10.0.0.1/24"); its name."""
        self.bridges += 1
        name = f"net{self.bridges}"
        ip("link", "add", name, "type", "bridge")
        ip("link", "set", name, "up")
        for address in addresses:
            ip("addr", "add", address, "dev", name, "nodad")
        return name

    def machine(self, network, *addresses):
        machine = Machine(f"troupe-m{os.getpid():x}-{len(self.made) + 1}")
        self.made.append(machine)
        machine.plug(network, *addresses)
        return machine

    def close(self):
        for machine in self.made:
            ip("netns", "del", machine.name, check=False)


class Machine:
    def __init__(self, name):
        self.name = name
        self.plugs = 0
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")

    def plug(self, network, *addresses):
        self.plugs += 1
        inside, outside = f"eth{self.plugs - 1}", f"{self.name[-6:]}p{self.plugs}"
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self.name)
        ip("link", "set", outside, "master", network, "up")
        ip("-n", self.name, "link", "set", inside, "up")
        for address in addresses:
            ip("-n", self.name, "addr", "add", address, "dev", inside, "nodad")

    def ip(self, *words):
        ip("-n", self.name, *words)

    def forward(self):
        forward("ip", "netns", "exec", self.name)

    def refuse_connections(self):
        """Drops whatever begins a connection to it, as most firewalls do; what lacks, if it cannot."""
        self.ip("link", "add", "nowhere0", "type", "veth", "peer", "name", "nowhere1")
        return tc(self.name, "qdisc", "replace", "dev", "eth0", "ingress") or tc(
            self.name, "filter", "replace", "dev", "eth0", "parent", "ffff:", "protocol", "all", "prio", "1",
            "bpf", "bytecode", BEGINS_CONNECTION, "action", "mirred", "egress", "redirect", "dev", "nowhere0",
        )  # fmt: skip

    def run(self, cluster, *words):
        """Any command of a cluster's, on this machine. Its state is its own."""
        log = cluster.folder / f"{self.name}-{len(cluster.processes)}.log"
        env = {**cluster.env, "TROUPE_STATE_DIR": str(cluster.folder / self.name)}
        process = running.Process(words, env, log, prefix=["ip", "netns", "exec", self.name])
        cluster.processes.append(process)
        return process

    def worker(self, cluster, head, *words):
        return self.run(cluster, "worker", "--head", head, "--join", cluster.state_dir / "join",
                        "--threads", 1, *words)  # fmt: skip
