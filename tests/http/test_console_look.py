"""How the page looks: that nothing is cut, half empty or too much alike, at a desk and in a hand."""

import html
import json
import re

import pytest

from browser import Stub, dump_dom, needs_browser, status_of

MEASURE = """setTimeout(() => {
  const found = { cut: [], empty: [], uneven: [], width: innerWidth };
  found.scroll = document.documentElement.scrollWidth - innerWidth;
  for (const panel of document.querySelectorAll("section")) {
    if (panel.offsetParent === null) continue;
    const box = panel.getBoundingClientRect();
    const shown = [...panel.children].filter((child) => child.offsetHeight > 0);
    const last = Math.max(...shown.map((child) => child.getBoundingClientRect().bottom));
    if (box.bottom - last > 40) found.empty.push(panel.innerText.slice(0, 30));
    for (const part of panel.querySelectorAll("td, th, b, span, p, canvas, input, button")) {
      const inner = part.getBoundingClientRect();
      if (inner.right > box.right + 0.5) found.cut.push(part.innerText);
    }
    if (panel.scrollWidth > panel.clientWidth) found.cut.push(panel.innerText.slice(0, 30));
  }
  for (const value of document.querySelectorAll("#figures b"))
    if (value.getClientRects().length > 1 || value.offsetHeight > 34) found.uneven.push(value.innerText);
  for (const text of document.querySelectorAll("#events-table td.long"))
    if (text.offsetWidth < 160) found.uneven.push(text.innerText);  // squeezed
  const lefts = [...document.querySelectorAll("#figures > div")].map((box) => box.offsetLeft);
  found.columns = new Set(lefts).size;
  const panels = [...document.querySelectorAll("section")].map((panel) => panel.getBoundingClientRect());
  found.used = Math.max(...panels.map((panel) => panel.right)) -
    Math.min(...panels.map((panel) => panel.left));
  found.beside = new Set(panels.filter((panel) => panel.height > 0).map((panel) => panel.left)).size;
  const why = [...document.querySelectorAll("#nodes td.long")].pop();
  found.reason_lines = why ? why.getClientRects()[0].height / 20 : 0;
  top.document.body.dataset.found = JSON.stringify(found);
}, 2500)"""
REASON = "its lease ended: nothing was heard from it for 1200 ms, and its machine, " * 3


def busy_status(asked):
    """A cluster of some size, as its page has to show it."""
    status = status_of("demo")
    first = status["nodes"][0]
    first["devices"] = [dict(first["devices"][0], id=f"node-1/{i}", kind="cuda", memory_total=8 << 30,
                             memory_used=(8 << 30) - (i << 27)) for i in range(2)]  # fmt: skip
    first.update(id="node-1", host="gpu-17.rack-4.example.org", pid=4194303)
    status["nodes"][1]["lost_reason"] = REASON
    shard = {"device": "node-1/0"}
    shards = [shard | {"layers": [15 * i, 15 * i + 14]} for i in range(4)]
    status["replicas"][0].update(kv_blocks_total=65536, kv_blocks_used=65000, running=128,
                                 waiting=1234, shards=shards)  # fmt: skip
    status["experts"].update(layers=4, experts=32, copies=40, load=[])
    status["experts"]["placement"] = [
        {"layer": layer, "slots": [{"expert": e % 32, "device": "node-1/0"} for e in range(40)]}
        for layer in range(4)]  # fmt: skip
    status["requests"]["rates"] = {"prompt_tokens_per_s": 12345.6, "generation_tokens_per_s": 98765.4,
                                   "ttft_ms": {"p50": 1234.5, "p99": 12345.6},
                                   "inter_token_ms": {"p50": 45.6, "p99": 1234.5}}  # fmt: skip
    status["events"] = [{"time": 1e9 + i, "kind": "peer_unreachable", "text": REASON} for i in range(6)]
    return status


def measured(page, width, status):
    with Stub(page, status, driver=MEASURE, width=width) as stub:
        dom = dump_dom(stub.url, 4)
    found = json.loads(html.unescape(re.search(r'data-found="([^"]*)"', dom)[1]))
    print(found)
    assert found["width"] == width
    return found


@needs_browser
@pytest.mark.parametrize("width", [400, 700, 1000, 1400, 2560])
@pytest.mark.parametrize("status", [busy_status, lambda asked: status_of("demo")], ids=["busy", "small"])
def test_no_panel_is_cut_or_half_empty(page, width, status):
    found = measured(page, width, status)
    assert found["scroll"] <= 0 and not found["cut"]
    assert not found["empty"] and not found["uneven"]
    assert found["used"] > 0.95 * width - 20
    assert found["beside"] == (1 if width < 1000 else 2 if width < 1900 else 3)


@needs_browser
def test_in_a_hand_figures_stand_in_two_columns_and_reasons_wrap(page):
    found = measured(page, 400, busy_status)
    assert found["columns"] == 2
    assert found["reason_lines"] > 2


def levels(html_text):
    """The colours of the map, for a light and a dark screen, after the card they lie on."""
    schemes = re.findall(r"--card: (#\w{6})(.*?)}", html_text, re.DOTALL)
    found = [[card, *re.findall(r"--heat\d: (#\w{6})", rest)] for card, rest in schemes]
    assert [len(colours) for colours in found] == [7, 7]
    return found


def linear(colour):
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


# What the three kinds of dichromats see: Machado, Oliveira and Fernandes 2009, severity 1.
EYES = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}  # fmt: skip


def lab(rgb):
    """CIE L*a*b* of linear sRGB, D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = [sum(m * c for m, c in zip(row, rgb)) / white
           for row, white in zip(to_xyz, (0.9505, 1, 1.089))]  # fmt: skip
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("eye", EYES)
def test_lines_of_a_graph_are_told_apart_by_every_eye(page, eye):
    pairs = re.findall(r"--graph0: (#\w{6}); --graph1: (#\w{6})", page[0])
    assert len(pairs) == 2  # light and dark
    for pair in pairs:
        seen = [lab([min(1, max(0, sum(m * c for m, c in zip(row, linear(colour))))) for row in EYES[eye]])
                for colour in pair]  # fmt: skip
        assert sum((a - b) ** 2 for a, b in zip(*seen)) ** 0.5 > 25


@pytest.mark.parametrize("eye", EYES)
def test_levels_of_the_map_are_told_apart_by_every_eye(page, eye):
    for colours in levels(page[0]):
        seen = []
        for colour in colours:
            rgb = linear(colour)
            seen.append(lab([min(1, max(0, sum(m * c for m, c in zip(row, rgb)))) for row in EYES[eye]]))
        steps = [sum((a - b) ** 2 for a, b in zip(one, two)) ** 0.5
                 for one, two in zip(seen[1:], seen[2:])]  # fmt: skip
        print(eye, [round(step) for step in steps], [round(one[0]) for one in seen])
        assert min(steps[1:]) > 15 and steps[0] > 8
        # Ever farther from the card: brightness alone tells the order.
        away = [abs(one[0] - seen[0][0]) for one in seen]
        assert away == sorted(away) and min(b - a for a, b in zip(away[2:], away[3:])) > 8
