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

function unpack(packed, size) {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  let place = 0;
  return Array.from({ length: size }, (_, query) =>
    Array.from({ length: size }, (_, key) => (key <= query ? bytes[place++] / 255 : 0)));
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

/* The shown tokens, the query boxed and its targets underlined, shaded by the query's attention. */
function rowView(example, matrix) {
  const row = matrix[example.query];
  return el("p", { class: "tokens" }, example.tokens.map((token, i) => el("span", {
    class: [i === example.query ? "query" : "", example.targets.includes(i) ? "target" : "", i > example.query ? "after" : ""].join(" ").trim() || null,
    style: i <= example.query ? `--share:${Math.round(row[i] * 100)}%` : null,
    title: i <= example.query ? `${visible(token)} ${number(row[i])}` : null,
  }, visible(token))));
}

function drawPattern(id, tokens, attention) {
  CircuitsVis.render(id, CircuitsVis.AttentionPattern, { tokens, attention });
}

function exampleView(example, open) {
  const matrix = unpack(example.pattern, example.tokens.length);
  const tokens = example.tokens.map(visible);
  const label = `attention pattern of ${headName(example.layer, example.head)}, ${example.kind}, ${example.window}`;
  const draw = () => later("circuit", label, (id) => drawPattern(id, tokens, matrix));
  const about = example.query < 0
    ? `ordinary text, ${example.window}`
    : `${example.kind}: mass ${number(example.mass)} from “${visible(example.tokens[example.query]).trim()}”, ${example.window}`;
  const details = el("details", { open }, el("summary", {}, about));
  if (example.query >= 0) details.append(rowView(example, matrix));
  const pattern = el("details", { class: "pattern", open: open || example.query < 0 }, el("summary", {}, "pattern"));
  const fill = () => { if (pattern.open && details.open && !pattern.querySelector(".circuit")) pattern.append(draw()); };
  pattern.addEventListener("toggle", fill);
  details.addEventListener("toggle", fill);
  details.append(pattern);
  fill();
  return details;
}
