"""Workers on the head's machine, by whatever name they join, beside others elsewhere."""

import time

import pytest

import network
from machines import Machines, forward
from network import ip
from promises import bound
from running import DEMO, Cluster, wait_until

ONE_REPLICA = ["--data-parallel-size", 1, "--redundant-experts", 0]


@pytest.fixture
def machines(troupe):
    with network.private() as inside:
        if not inside:
            pytest.skip("network namespaces need root and ip")
        machines = Machines()
        try:
            yield machines
        finally:
            machines.close()


@pytest.fixture
def spread(machines):
    """A function that starts a head with so many stages; the cluster is ended whatever happens."""
    with Cluster() as cluster:

        def start(stages, listen="0.0.0.0"):
            cluster.start("head", "--model", DEMO, "--listen", f"{listen}:{cluster.control_port}", "--port",
                          cluster.http_port, *ONE_REPLICA, "--pipeline-parallel-size", stages,
                          "--min-devices", stages)  # fmt: skip
            cluster.wait_joinable()
            cluster.wait_answers()
            return cluster

        yield start


def at(cluster, host):
    return f"{host}:{cluster.control_port}"


def local(cluster, host, *words):
    return cluster.start("worker", "--head", at(cluster, host), "--threads", 1, *words)


def serves(cluster, workers):
    """With all its workers, of which none was ever lost."""
    cluster.wait_ready()
    cluster._wait(lambda: len(cluster.ready_nodes()) == workers, f"{workers} workers are used")
    cluster.complete("brandy", max_tokens=4)
    assert cluster.status()["cluster"]["counters"]["lost"] == 0, cluster.logs()


def joined(cluster, workers):
    cluster._wait(lambda: len(cluster.joined_nodes()) == workers, f"{workers} have joined")


def told(cluster, *words):
    """The first event that has these words, in time."""
    began = time.monotonic()

    def look():
        return [e["text"] for e in cluster.status()["events"] if all(word in e["text"] for word in words)]

    text = wait_until(look, f"an event with {words}")[0]
    return text, time.monotonic() - began


def test_workers_at_the_head_that_join_by_loopback_and_one_elsewhere(machines, spread):
    """The others were thrown out, again and again: their peers called 127.0.0.1."""
    net = machines.network("10.77.0.1/24")
    there = machines.machine(net, "10.77.0.2/24")
    cluster = spread(3)
    # The line to run elsewhere has an address that leads there.
    cluster.processes[0].wait_log(f"worker --head {at(cluster, '10.77.0.1')}")
    local(cluster, "127.0.0.1")
    local(cluster, "127.0.1.1")  # as the name of a Debian machine resolves there
    there.worker(cluster, at(cluster, "10.77.0.1"))
    serves(cluster, 3)
    # A wrong interface is of its own worker only, and the sentence says which.
    wrong = machines.machine(net, "10.77.0.3/24").worker(
        cluster, at(cluster, "10.77.0.1"), "--bind-interface", "lo"
    )
    wrong.wait_log("--bind-interface")
    text, _ = told(cluster, "is lost", "--bind-interface")
    lost = [node for node in cluster.status()["nodes"] if node["pid"] == wrong.pid]
    assert text.startswith(lost[0]["id"]) and "127.0.0.1" in text, text
    cluster.complete("brandy", max_tokens=4)
    assert len(cluster.ready_nodes()) == 3


@pytest.mark.long
def test_workers_on_both_networks_of_the_head_find_the_one_at_the_head(machines, spread):
    """Each by the address of the head that it uses; they find each other by way of the head's machine."""
    left, right = machines.network("10.77.0.1/24"), machines.network("10.88.0.1/24")
    forward()
    a, b = machines.machine(left, "10.77.0.2/24"), machines.machine(right, "10.88.0.2/24")
    a.ip("route", "add", "default", "via", "10.77.0.1")
    b.ip("route", "add", "default", "via", "10.88.0.1")
    cluster = spread(3)
    local(cluster, "127.0.0.1")
    a.worker(cluster, at(cluster, "10.77.0.1"))
    b.worker(cluster, at(cluster, "10.88.0.1"))
    serves(cluster, 3)


@pytest.mark.long
@pytest.mark.parametrize("name", ["[::1]", "localhost", "127.0.0.1"])
def test_ipv6_between_machines(machines, spread, name):
    net = machines.network("fd00:77::1/64")
    there = machines.machine(net, "fd00:77::2/64")
    cluster = spread(2, listen="[::]")
    local(cluster, name)
    there.worker(cluster, at(cluster, "[fd00:77::1]"))
    serves(cluster, 2)


@pytest.mark.long
def test_one_machine_by_both_families(machines, spread):
    """The same workers, some of which came by IPv4 and some by IPv6."""
    net = machines.network("10.77.0.1/24", "fd00:77::1/64")
    one = machines.machine(net, "10.77.0.2/24", "fd00:77::2/64")
    two = machines.machine(net, "10.77.0.3/24", "fd00:77::3/64")
    cluster = spread(3, listen="[::]")
    local(cluster, "127.0.0.1")
    one.worker(cluster, at(cluster, "10.77.0.1"))
    two.worker(cluster, at(cluster, "[fd00:77::1]"))
    serves(cluster, 3)


@pytest.mark.long
def test_link_local_addresses(machines, spread):
    net = machines.network("fe80::1/64")
    one, two = machines.machine(net, "fe80::2/64"), machines.machine(net, "fe80::3/64")
    cluster = spread(3, listen="[::]")
    local(cluster, "127.0.0.1")
    one.worker(cluster, at(cluster, "[fe80::1%eth0]"))
    two.worker(cluster, at(cluster, "[fe80::1%eth0]"))
    serves(cluster, 3)


@pytest.mark.long
def test_a_worker_behind_a_router(machines, spread):
    near, far = machines.network("10.77.0.1/24"), machines.network()
    router = machines.machine(near, "10.77.0.254/24")
    router.plug(far, "10.99.0.1/24")
    behind = machines.machine(far, "10.99.0.2/24")
    behind.ip("route", "add", "default", "via", "10.99.0.1")
    ip("route", "add", "10.99.0.0/24", "via", "10.77.0.254")
    router.forward()
    cluster = spread(2)
    local(cluster, "127.0.0.1")
    behind.worker(cluster, at(cluster, "10.77.0.1"))
    serves(cluster, 2)


@pytest.mark.long
def test_a_head_for_this_machine_only(machines, spread):
    machines.network("10.77.0.1/24")
    cluster = spread(2, listen="127.0.0.1")
    local(cluster, "127.0.0.1"), local(cluster, "localhost")
    serves(cluster, 2)


@pytest.mark.parametrize("first", ["here", pytest.param("there", marks=pytest.mark.long)])
def test_a_firewall_in_front_of_one_worker(machines, spread, first):
    """It can go to the others, so that is what is done."""
    net = machines.network("10.77.0.1/24")
    there = machines.machine(net, "10.77.0.2/24")
    if why := there.refuse_connections():
        pytest.skip(f"this kernel cannot: {why}")
    cluster = spread(2)
    starts = [lambda: local(cluster, "127.0.0.1"), lambda: there.worker(cluster, at(cluster, "10.77.0.1"))]
    for count, start in enumerate(starts if first == "here" else starts[::-1], 1):
        start()
        joined(cluster, count)
    serves(cluster, 2)


@pytest.mark.long
def test_firewalls_in_front_of_both_are_told_with_the_port(machines, spread):
    net = machines.network("10.77.0.1/24")
    one, two = machines.machine(net, "10.77.0.2/24"), machines.machine(net, "10.77.0.3/24")
    for machine in (one, two):
        if why := machine.refuse_connections():
            pytest.skip(f"this kernel cannot: {why}")
    cluster = spread(2)
    one.worker(cluster, at(cluster, "10.77.0.1"))
    joined(cluster, 1)
    two.worker(cluster, at(cluster, "10.77.0.1"))
    joined(cluster, 2)
    text, took = told(cluster, "node-2", "is lost", "10.77.0.3:", "firewall")
    bound("a closed port is told", took, 10)
    # The one that came first serves, and goes on.
    cluster.wait_ready()
    cluster.complete("brandy", max_tokens=4)


@pytest.mark.long
@pytest.mark.parametrize("who", ["here", "there"])
def test_a_wrong_interface_leaves_its_own_worker_out(machines, spread, who):
    """Whoever came first: with nothing else to tell them apart, the newer one would go."""
    net = machines.network("10.77.0.1/24")
    there = machines.machine(net, "10.77.0.2/24")
    cluster = spread(2)
    flags = {who: ["--bind-interface", "lo"]}
    local(cluster, "127.0.0.1", *flags.get("here", []))
    joined(cluster, 1)
    there.worker(cluster, at(cluster, "10.77.0.1"), *flags.get("there", []))
    text, _ = told(cluster, "is lost", "--bind-interface")
    assert text.startswith("node-1" if who == "here" else "node-2"), text


@pytest.mark.long
def test_an_interface_that_leads_elsewhere(machines, spread):
    """The newer worker is where it should be, the older one is not."""
    net = machines.network("10.77.0.1/24")
    wrong, right = machines.machine(net, "10.77.0.2/24"), machines.machine(net, "10.77.0.3/24")
    wrong.ip("link", "add", "eth9", "type", "bridge")
    wrong.ip("addr", "add", "10.200.0.1/24", "dev", "eth9")
    wrong.ip("link", "set", "eth9", "up")
    cluster = spread(2)
    wrong.worker(cluster, at(cluster, "10.77.0.1"), "--bind-interface", "eth9")
    joined(cluster, 1)
    right.worker(cluster, at(cluster, "10.77.0.1"))
    text, _ = told(cluster, "is lost", "--bind-interface")
    assert text.startswith("node-1") and "10.200.0.1" in text and "10.77.0.2" in text, text
