/* Examples as circuitsvis views, drawn when they come into sight. */

const MARKS = { 0x200e: "LRM", 0x200f: "RLM", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI" };

/* A token as text that can be seen: blanks, line breaks, direction marks and broken characters. */
function visible(token) {
  let text = "";
  for (const char of token) {
    const code = char.codePointAt(0);
    if (char === "\n") text += "↵";
    else if (char === "\t") text += "⇥";
    else if (MARKS[code]) text += `⟨${MARKS[code]}⟩`;
    else if (code < 32 || (code >= 0x7f && code < 0xa0) || (code >= 0xd800 && code < 0xe000)) {
      text += `⟨${code.toString(16).padStart(2, "0")}⟩`;
    } else text += char;
  }
  return text || "∅";
}

const bytesOf = (packed) => Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));

function unpack(packed, size) {
  const bytes = bytesOf(packed), whole = bytes.length === size * size;
  let place = 0;
  const rows = Array.from({ length: size }, (_, query) =>
    Array.from({ length: size }, (_, key) => (whole || key <= query ? bytes[place++] / 255 : 0)));
  return Object.assign(rows, { whole });
}

let views = 0;
let looking = null;
const waiting = new Map();

/* Draw the views that are in the window or just outside it. */
function drawVisible() {
  looking = null;
  for (const [place, draw] of [...waiting]) {
    const box = place.getBoundingClientRect();
    const seen = box.width && box.top < window.innerHeight + 200 && box.bottom > -200;
    if (seen || !place.isConnected) waiting.delete(place);
    if (seen) draw(place.id);
  }
}

function lookSoon() {
  if (looking === null && waiting.size) looking = setTimeout(drawVisible, 50);
}
window.addEventListener("scroll", lookSoon, { passive: true });
window.addEventListener("resize", lookSoon);

/* A place for a view; `draw(id)` runs once, when the place is near the window. */
function later(className, label, draw) {
  const place = el("div", { class: className, id: `view${views++}`, role: "img", "aria-label": label });
  waiting.set(place, draw);
  lookSoon();
  return place;
}

/* The shown tokens, the query boxed and its targets underlined, shaded by the query's attention; where
   tokens are left out, the attention on them, and the position of the token that follows. */
function rowView(example, matrix) {
  const row = matrix[example.query];
  const gaps = new Map(example.gaps.map(([place, ...gap]) => [place, gap]));
  const seen = (i) => matrix.whole || i <= example.query;
  const shade = (share) => `--share:${Math.round(share * 100)}%`;
  const gap = ([first, end, share]) => [el("span", { class: "gap", style: shade(share), title: `tokens ${first} to ${end - 1} are not shown: ${number(share)}` },
    ` … ${share < 0.005 ? "" : `${number(share)} … `}`), el("span", { class: "at" }, `${end}:`)];
  return el("p", { class: "tokens" }, example.tokens.map((token, i) => [gaps.has(i) ? gap(gaps.get(i)) : null, el("span", {
    class: ["token", i === example.query ? "query" : "", example.targets.includes(i) ? "target" : "", seen(i) ? "" : "after"].join(" ").trim(),
    style: seen(i) ? shade(row[i]) : null,
    title: seen(i) ? `${visible(token)} ${number(row[i])}` : null,
  }, visible(token))]).flat(2), el("span", { class: "at" }, example.positions.at(-1) + 1 < example.length ? " …" : ""));
}

/* What the excerpt does not show, in words. */
function leftOut(example) {
  const said = [`${number(example.outside)} of the boxed token's attention is on tokens that are not shown`];
  if (example.more) said.push(`${example.more} of its targets are not shown`);
  if (!example.positions.length) said.push("an older headscope did not keep where the shown tokens stand");
  return el("p", { class: "small" }, `${said.join("; ")}.`);
}

/* Rows and columns of a pattern: the shown tokens with their positions; before them, where some are left
   out, a column for the attention on all others. */
function patternOf(example, matrix) {
  const names = example.tokens.map((token, i) => (example.gaps.length ? `${example.positions[i]}:` : "") + visible(token));
  const rest = [...bytesOf(example.elsewhere)].map((level) => level / 255);
  if (!example.gaps.length && rest.every((share) => share < 0.02)) return [names, matrix];
  return [["(not shown)", ...names], [[0, ...rest.map(() => 0)], ...matrix.map((row, i) => [rest[i], ...row])]];
}

function drawPattern(id, tokens, attention, whole) {
  CircuitsVis.render(id, CircuitsVis.AttentionPattern, { tokens, attention, maskUpperTri: !whole });
}

function exampleView(example, open) {
  const matrix = unpack(example.pattern, example.tokens.length);
  const [tokens, attention] = patternOf(example, matrix);
  const label = `attention pattern of ${headName(example.layer, example.head)}, ${example.kind}, ${example.window}`;
  const draw = () => later("circuit", label, (id) => drawPattern(id, tokens, attention, matrix.whole));
  const about = example.query < 0
    ? `ordinary text, ${example.window}`
    : `${example.kind}: mass ${number(example.mass)} from “${visible(example.tokens[example.query]).trim()}”${example.positions.length ? ` at ${example.positions[example.query]} of ${example.length}` : ""}, ${example.window}`;
  const details = el("details", { open }, el("summary", {}, about));
  if (example.query >= 0) details.append(rowView(example, matrix), leftOut(example));
  const pattern = el("details", { class: "pattern", open: open || example.query < 0 }, el("summary", {}, "pattern"));
  const fill = () => { if (pattern.open && details.open && !pattern.querySelector(".circuit")) pattern.append(draw()); };
  pattern.addEventListener("toggle", fill);
  details.addEventListener("toggle", fill);
  details.append(pattern);
  fill();
  return details;
}
