// --- Markdown ---
// Of what a model says. Elements are made one by one and text is put into them: nothing that it
// says is markup, and no link can be followed.

const NESTED_MAX = 4;  // quotes and lists in each other; deeper ones are text
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)/;
const FENCE = /^\s{0,3}(`{3,}|~{3,})/;
const HEADING = /^\s{0,3}#{1,6}\s+/;
const RULE = /^\s{0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^\s{0,3}> ?/;
const SEPARATOR = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

/** Puts text with `code`, **strong** and *emphasis* into a node. */
function inline(into, text, deep = 0) {
  const marks = ["`", "**", "*", "~~", "_"], names = ["code", "strong", "em", "s", "em"];
  const missing = new Set();  // marks that do not come again: looked for once
  let plain = 0;
  for (let at = 0; at < text.length; ++at) {
    const which = marks.findIndex((mark) => text.startsWith(mark, at));
    if (which < 0) continue;
    let mark = marks[which];
    while (which === 0 && text[at + mark.length] === "`") mark += "`";
    const begin = at + mark.length, letter = /[\p{L}\p{N}]/u;
    const single = mark.length === 1 && which > 0;  // snake_case and 2*3*4 are no emphasis
    const inWord = single && letter.test(text[at - 1] ?? " ");
    let end = missing.has(mark) ? -1 : text.indexOf(mark, begin + 1);
    while (which === 1 && end >= 0 && text[end + 2] === "*") ++end;  // **a *b***
    if (end < 0) missing.add(mark);
    const blank = which > 0 && (/\s/.test(text[begin] ?? " ") || /\s/.test(text[end - 1] ?? " "));
    const cutsWord = single && letter.test(text[end + 1] ?? " ");
    if (end < 0 || inWord || cutsWord || blank || deep >= NESTED_MAX) {
      at = begin - 1;
      continue;
    }
    into.append(text.slice(plain, at));
    const made = element(names[which]);
    if (which === 0) made.textContent = text.slice(begin, end);
    else inline(made, text.slice(begin, end), deep + 1);
    into.append(made);
    plain = end + mark.length;
    at = plain - 1;
  }
  into.append(text.slice(plain));
}

function cellsOf(line) {
  return line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());
}

/** The block that begins with line `from`, and the line after it. */
function block(lines, from, deep) {
  const line = lines[from], fence = FENCE.exec(line);
  let to = from + 1;
  if (fence) {
    while (to < lines.length && !lines[to].trim().startsWith(fence[1])) ++to;
    const made = element("pre");
    made.append(element("code", lines.slice(from + 1, to).join("\n")));
    return [made, Math.min(to + 1, lines.length)];
  }
  if (RULE.test(line)) return [element("hr"), to];
  if (HEADING.test(line)) {
    const made = element("h3");
    inline(made, line.replace(HEADING, ""));
    return [made, to];
  }
  if (line.includes("|") && to < lines.length && SEPARATOR.test(lines[to])) {
    const made = element("table"), wide = cellsOf(line).length;
    for (to = from; to < lines.length && lines[to].includes("|"); ++to) {
      if (to === from + 1) continue;
      const row = element("tr");
      for (const cell of cellsOf(lines[to]).slice(0, wide)) {
        row.append(element(to === from ? "th" : "td"));
        inline(row.lastChild, cell);
      }
      made.append(row);
    }
    return [made, to];
  }
  if (QUOTE.test(line) && deep < NESTED_MAX) {
    while (to < lines.length && QUOTE.test(lines[to])) ++to;
    const made = element("blockquote");
    for (const [inside] of blocks(lines.slice(from, to).map((l) => l.replace(QUOTE, "")), deep + 1))
      made.append(inside);
    return [made, to];
  }
  if (ITEM.test(line) && deep < NESTED_MAX) return items(lines, from, deep);
  const begins = (l) => FENCE.test(l) || HEADING.test(l) || QUOTE.test(l) || ITEM.test(l);
  while (to < lines.length && lines[to].trim() && !begins(lines[to])) ++to;
  const made = element("p");
  inline(made, lines.slice(from, to).join("\n").trim());
  return [made, to];
}

/** A list: items of one kind, with what is indented below them. */
function items(lines, from, deep) {
  const first = ITEM.exec(lines[from]), ordered = /\d/.test(first[2]);
  const made = element(ordered ? "ol" : "ul");
  if (ordered) made.start = parseInt(first[2], 10);
  let at = from;
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item || item[1].length > first[1].length + 1 || /\d/.test(item[2]) !== ordered) break;
    const inside = [lines[at].slice(item[0].length)], indent = item[1].length + 1;
    const belongs = (l) => l !== undefined && l.trim() !== "" && l.search(/\S/) > indent;
    for (++at; at < lines.length; ++at) {
      if (!belongs(lines[at]) && !(lines[at].trim() === "" && belongs(lines[at + 1]))) break;
      inside.push(lines[at].slice(Math.min(item[0].length, Math.max(0, lines[at].search(/\S/)))));
    }
    const row = element("li");
    for (const [part] of blocks(inside, deep + 1)) row.append(part);
    made.append(row);
    while (at + 1 < lines.length && lines[at].trim() === "" && ITEM.test(lines[at + 1])) ++at;
  }
  return [made, at];
}

/** All blocks of these lines, each with the line that it begins with. */
function blocks(lines, deep = 0) {
  const out = [];
  for (let at = 0; at < lines.length; ) {
    if (lines[at].trim() === "") {
      ++at;
      continue;
    }
    const [made, next] = block(lines, at, deep);
    out.push([made, at]);
    at = next;
  }
  return out;
}

/** Shows a text that grows: only its last two blocks are made anew, whatever the length of the text.
    Two, because what begins as a paragraph may become an item of the list before it. */
function growing(box) {
  let text = "", settled = 0, loose = [];
  return {
    text: () => text,
    add(more) {
      text = settled === 0 ? (text + more).trimStart() : text + more;
      const lines = text.slice(settled).split("\n"), made = blocks(lines);
      for (const node of loose) node.remove();
      loose = made.map(([node]) => node);
      box.append(...loose);
      if (made.length < 3) return;
      const next = made[made.length - 2][1];
      settled += lines.slice(0, next).join("\n").length + 1;
      loose = loose.slice(-2);
    },
  };
}
