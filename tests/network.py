"""Ways to break connections, whatever the machine allows.

With root rights every worker gets a network namespace of its own, joined to the head's by a bridge: its
link can be taken away without a word (no packet says goodbye), one direction or one pair of workers can
be cut, connections can be reset, and links can be slow, lossy or bursty. All of it lies in a private
namespace (`enter_private`), so that nothing of the machine's own network changes. Without rights, workers
reach the head through a proxy in this process, which cuts, falls silent, or does so in one direction;
workers cannot be cut off from each other then.
"""

import asyncio
import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import threading

INSIDE = "TROUPE_CHAOS_PRIVATE_NETWORK"
HUB = "10.213.0.1"
BRIDGE = "troupe0"
CLONE_NEWNET = 0x40000000

# Links between good and cut. Few kernels have netem, so this is made of what nearly all have.
SLOW = ["rate", "8mbit", "burst", "32kbit", "latency", "400ms"]
# A link that passes on nothing for 300 ms, and then all of it at once.
STILL = ["rate", "40kbit", "burst", "1600", "limit", "64mb"]
OPEN = ["rate", "4gbit", "burst", "4mb", "limit", "64mb"]
STILL_S, OPEN_S = 0.3, 0.2
LOST_OF_100 = 2
# Classic BPF: a random word, below the limit is a match.
LOSES = f"4,32 0 0 4294963256,53 1 0 {LOST_OF_100 * 2**32 // 100},6 0 0 4294967295,6 0 0 0"


def ip(*words, check=True):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    assert not check or done.returncode == 0, f"ip {' '.join(map(str, words))}: {done.stderr}"
    return done


def works(words):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def enter_private():
    """Starts this program again in a network namespace of its own, where that is allowed. Returns
    whether it runs in one."""
    if os.environ.get(INSIDE) == str(os.getpid()):
        ip("link", "set", "lo", "up")
        return True
    tools = all(shutil.which(tool) for tool in ("unshare", "ip", "ss"))
    probe = "ip link set lo up && ip link add troupe0 type bridge && ip link add v0 type veth peer name v1"
    if not tools or os.geteuid() != 0 or not works(["unshare", "--net", "sh", "-c", probe]):
        return False
    os.environ[INSIDE] = str(os.getpid())  # exec keeps the process id
    os.execvp("unshare", ["unshare", "--net", "--", sys.executable, *sys.argv])


@contextlib.contextmanager
def private():
    """This thread, and what it starts, in a network namespace of its own for a while. Gives whether
    that is allowed here."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as before:
        if os.geteuid() != 0 or not shutil.which("ip") or libc.unshare(CLONE_NEWNET) != 0:
            yield False
            return
        try:
            ip("link", "set", "lo", "up")
            yield True
        finally:
            assert libc.setns(before.fileno(), CLONE_NEWNET) == 0


def tc(name, *words):
    """Traffic control in a namespace, the own one without a name; what it has to complain of."""
    inside = ["-n", name] if name else []
    return subprocess.run(["tc", *inside, *words], capture_output=True, text=True).stderr.strip()


@functools.cache
def shapes_missing():
    """What this machine lacks for each treatment of links that it cannot do. Call in a private namespace."""
    if not shutil.which("tc"):
        return dict.fromkeys(("slow", "lossy", "bursty"), "tc is not installed")
    ip("link", "add", "probe0", "type", "veth", "peer", "name", "probe1")
    try:
        tbf = tc("", "qdisc", "replace", "dev", "probe0", "root", "tbf", *SLOW)
        lossy = drop_some("", "probe0", "probe1")
    finally:
        ip("link", "del", "probe0")
    found = {"slow": tbf, "bursty": tbf, "lossy": lossy}
    return {kind: f"this kernel cannot: {why}" for kind, why in found.items() if why}


def drop_some(name, device, nowhere):
    """Some packets that arrive at a device go to one that is down; what there is to complain of."""
    return tc(name, "qdisc", "replace", "dev", device, "ingress") or tc(
        name, "filter", "replace", "dev", device, "parent", "ffff:", "protocol", "all", "prio", "1", "bpf",
        "bytecode", LOSES, "action", "mirred", "egress", "redirect", "dev", nowhere,
    )  # fmt: skip


class Direct:
    """Workers reach the head over loopback. Nothing can be cut."""

    name = "direct"
    hub = "127.0.0.1"
    can = frozenset()
    cannot = {}

    def join(self, port):
        """A place for a worker: how it is started, and where it finds the head."""
        return Link([], f"{self.hub}:{port}")

    def close(self):
        pass


class Link:
    def __init__(self, prefix, head):
        self.prefix = prefix
        self.head = head

    def close(self):
        pass


class Namespaces:
    """A namespace a worker. Call in a private namespace only."""

    name = "namespaces"
    hub = HUB
    all = frozenset({"cut_off", "one_way_out", "one_way_in", "reset", "cut_pair", "reset_pair", "slow",
                     "lossy", "bursty"})  # fmt: skip

    def __init__(self, mark):
        self.cannot = shapes_missing()
        self.can = self.all - set(self.cannot)
        self.mark = mark
        self.count = 0
        self.links = []
        # A bridge without an address of its own takes a port's, and a new one when that port goes: what
        # others send to the head is lost then, until they have asked for its address again.
        ip("link", "add", BRIDGE, "address", "02:00:00:00:00:01", "type", "bridge")
        ip("addr", "add", f"{HUB}/16", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        ip("link", "add", "nowhere0", "type", "veth", "peer", "name", "nowhere1")

    def join(self, port):
        self.count += 1
        link = NamespaceLink(f"troupe-{self.mark[:8]}-{self.count}", self.count, f"{HUB}:{port}")
        self.links.append(link)
        return link

    def close(self):
        for link in self.links:
            link.close()
        ip("link", "del", BRIDGE, check=False)
        ip("link", "del", "nowhere0", check=False)


class NamespaceLink(Link):
    def __init__(self, name, number, head):
        super().__init__(["ip", "netns", "exec", name], head)
        self.name = name
        self.outside = f"v{number}"
        self.address = f"10.213.{number // 250 + 1}.{number % 250 + 1}"
        self.closed = False
        ip("netns", "add", name)
        ip("link", "add", self.outside, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", self.outside, "master", BRIDGE, "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "addr", "add", f"{self.address}/16", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "add", "nowhere0", "type", "veth", "peer", "name", "nowhere1")

    def cut_off(self):
        ip("link", "set", self.outside, "nomaster")
        return lambda: ip("link", "set", self.outside, "master", BRIDGE, check=False)

    def _hole(self, where, address):
        ip(*where, "route", "add", "blackhole", f"{address}/32", check=False)
        return lambda: ip(*where, "route", "del", "blackhole", f"{address}/32", check=False)

    def one_way_out(self):
        """What it sends to the head is lost; what the head sends arrives."""
        return self._hole(["-n", self.name], HUB)

    def one_way_in(self):
        return self._hole([], self.address)

    def reset(self):
        """Ends all its connections at once; new ones succeed."""
        subprocess.run(["ip", "netns", "exec", self.name, "ss", "-K", "-tn"], capture_output=True)
        return lambda: None

    def cut_pair(self, other):
        heal = [self._hole(["-n", self.name], other.address), self._hole(["-n", other.name], self.address)]
        return lambda: [one() for one in heal]

    def reset_pair(self, other):
        subprocess.run(["ip", "netns", "exec", self.name, "ss", "-K", "-tn", "dst", other.address],
                       capture_output=True)  # fmt: skip
        return lambda: None

    def _ends(self):
        """Both devices: what it sends passes the first, what it receives the second."""
        return (self.name, "eth0"), ("", self.outside)

    def _unshaped(self, kind):
        for name, device in self._ends():
            tc(name, "qdisc", "del", "dev", device, kind)

    def slow(self):
        for name, device in self._ends():
            assert not (why := tc(name, "qdisc", "replace", "dev", device, "root", "tbf", *SLOW)), why
        return lambda: self._unshaped("root")

    def lossy(self):
        for name, device in self._ends():
            assert not (why := drop_some(name, device, "nowhere0")), why
        return lambda: self._unshaped("ingress")

    def bursty(self):
        """Changing the rate keeps what waits."""
        healed = threading.Event()

        def alternate():
            while not self.closed:
                for rate, seconds in ((STILL, STILL_S), (OPEN, OPEN_S)):
                    for name, device in self._ends():
                        tc(name, "qdisc", "change", "dev", device, "root", "tbf", *rate)
                    if healed.wait(seconds):
                        return self._unshaped("root")

        for name, device in self._ends():
            assert not (why := tc(name, "qdisc", "replace", "dev", device, "root", "tbf", *OPEN)), why
        thread = threading.Thread(target=alternate, daemon=True)
        thread.start()

        def heal():
            healed.set()
            thread.join()

        return heal

    def close(self):
        if not self.closed:
            self.closed = True
            ip("netns", "del", self.name, check=False)
            ip("link", "del", self.outside, check=False)


class Proxies:
    """A proxy a worker, between it and the head. They share one thread, which is lively enough as
    only the control lane passes."""

    name = "proxies"
    hub = "127.0.0.1"
    can = frozenset({"cut_off", "one_way_out", "one_way_in", "reset"})
    cannot = {}

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def join(self, port):
        link = ProxyLink(self, port)
        self.call(link.open())
        return link

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


class ProxyLink(Link):
    def __init__(self, proxies, port):
        super().__init__([], None)
        self.proxies = proxies
        self.port = port
        self.lost = set()
        self.writers = set()

    async def open(self):
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.server = server
        self.head = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def accept(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        both = (writer, far_writer)
        self.writers.update(both)
        try:
            ways = [self.pump(reader, far_writer, "out"), self.pump(far_reader, writer, "in")]
            await asyncio.wait(map(asyncio.ensure_future, ways), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.writers.difference_update(both)
            for one in both:
                one.transport.abort()

    async def pump(self, reader, writer, way):
        """Bytes that were lost cannot come later: a stream with a hole in it never goes on."""
        hole = False
        try:
            while data := await reader.read(1 << 16):
                hole = hole or way in self.lost
                if not hole:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        while way in self.lost:
            await asyncio.sleep(0.05)  # the end of a stream is lost too

    def _lose(self, *ways):
        self.lost.update(ways)
        return lambda: self.lost.difference_update(ways)

    def cut_off(self):
        return self._lose("in", "out")

    def one_way_out(self):
        return self._lose("out")

    def one_way_in(self):
        return self._lose("in")

    def reset(self):
        def abort():
            for writer in list(self.writers):
                writer.transport.abort()

        self.proxies.loop.call_soon_threadsafe(abort)
        return lambda: None

    def close(self):
        self.lost.clear()
        self.reset()


def best_network(mark, private):
    return Namespaces(mark) if private else Proxies()
