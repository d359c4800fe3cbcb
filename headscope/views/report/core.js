/* Heads, elements and colours that every page of the report uses. */

const TYPES = DATA.types.map((t) => t.name);
const OTHERS = [...new Set(DATA.relations.map((r) => r.type))].filter((t) => !TYPES.includes(t));
const ALL_TYPES = [...TYPES, ...OTHERS].filter((t) => DATA.relations.some((r) => r.type === t));
const UNCLASSIFIED = "unclassified";
const UNDECIDED = "not identifiable";
/* Attention sinks are drawn faintly, in a group of their own. */
const SINKS = ALL_TYPES.filter((t) => DATA.types.some((own) => own.name === t && own.sink));
const isSink = (type) => SINKS.includes(type);
const GROUPS = [["attends to", ALL_TYPES.filter((t) => !isSink(t))], ["attention sink", SINKS], ["no tag", [UNDECIDED, UNCLASSIFIED]]].filter(([, own]) => own.length);
const MARKED = GROUPS.flatMap(([, own]) => own);
/* Types that some head has as a tag, and those that none has: the second are folded away. */
const HAD_TYPES = ALL_TYPES.filter((t) => (DATA.strongest[t] || []).length);
const BARE_TYPES = ALL_TYPES.filter((t) => !HAD_TYPES.includes(t));
const LETTERS = Object.fromEntries(DATA.types.map((t) => [t.name, t.letter]));

/* An element with attributes and children; text goes in as text, never as HTML. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/* Bytes that were written in base64. */
function bytesOf(packed) {
  return Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
}

/* A count in a sentence, with commas between thousands. */
const counted = (count) => (count === null || count === undefined ? "–" : count.toLocaleString("en"));
const plural = (count, word) => `${counted(count)} ${word}${count === 1 ? "" : "s"}`;
const layerName = (layer) => `L${layer}`;
const headName = (layer, head) => `${layerName(layer)}H${head}`;
const number = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const small = (value) => (value === null ? "–" : value < 0.001 ? value.toExponential(0) : value.toFixed(3));
/* Layers by their own numbers: of a hybrid model not all have heads. */
const hasHead = (layer, head) => DATA.layers.includes(layer) && head < DATA.heads;
const placeOf = (layer, head) => DATA.layers.indexOf(layer) * DATA.heads + head;
const rowOf = (layer, head) => DATA.rows[placeOf(layer, head)];
const untyped = (type) => type === UNCLASSIFIED || type === UNDECIDED;
const typeClass = (type) => (type === UNDECIDED ? "undecided" : TYPES.includes(type) || type === UNCLASSIFIED ? type + (isSink(type) ? " of-sink" : "") : "other");
/* Whether a head could have earned the type: else a count of 0 would say what nobody measured. */
const countable = (type) => untyped(type) || DATA.countable.includes(type);
const letter = (type) => LETTERS[type] || (type === UNCLASSIFIED ? "" : type === UNDECIDED ? "?" : type[0].toUpperCase());
const tagsOf = (row) => (row.tags ? row.tags.split(";") : []);
/* The heads with a tag, the strongest first: the place of each, and the relation that it is strongest by. */
const strongestOf = (type) => (DATA.strongest[type] || []).map(([place, id]) => [place, DATA.relations.find((r) => r.id === id)]);
const interval = (low, high) => `${number(low)} … ${number(high)}`;

/* "L5H1", "5.1" or "5 1" to a row; null when there is no such head. */
function parseHead(text) {
  const match = /^\s*L?(\d+)[\s.h]+(\d+)\s*$/i.exec(text);
  if (!match) return null;
  const [layer, head] = [Number(match[1]), Number(match[2])];
  return hasHead(layer, head) ? rowOf(layer, head) : null;
}

const typeLink = (type) => el("a", { href: `#type=${encodeURIComponent(type)}` }, type);

function chip(type, text) {
  return el("span", { class: `chip type-${typeClass(type)}` }, text || type);
}

/* Whether a type is listed in a head's column `preliminary` or `below_baseline`. */
const hasCaution = (row, column, type) => (row[column] || "").split(";").includes(type);
const inBrackets = (words) => (words.length ? ` (${words.join(", ")})` : "");

/* A head's tag with its cautions in words. */
function markedTag(row, type) {
  return type + inBrackets(Object.entries(DATA.cautions).filter(([column]) => hasCaution(row, column, type)).map(([, [word]]) => word));
}

/* The cautions of a head's tag by a relation, in words. */
const cautionsOf = (r, place) => inBrackets(cautionColumns(r, place).map((column) => DATA.cautions[column][0]));

/* The columns of the cautions of a head's tag by a relation. */
function cautionColumns(r, place) {
  const holds = { preliminary: r.preliminary.includes(place), below_baseline: isBelowBaseline(r, place) };
  return r.tagged[place] ? Object.keys(DATA.cautions).filter((column) => holds[column]) : [];
}

const hasBaseline = (r, place) => r.hit_rate[place] !== null && r.baseline_rate !== null;
const isBelowBaseline = (r, place) => hasBaseline(r, place) && r.hit_rate[place] < r.baseline_rate;
/* The hit rates of a head and of the relation's baseline. */
const hitsOf = (r, place) => (hasBaseline(r, place) ? `${number(r.hit_rate[place])} ${isBelowBaseline(r, place) ? "<" : "≥"} ${number(r.baseline_rate)}` : "");
/* The classes of a head's cell in an atlas. */
const cellClass = (row) => `cell type-${typeClass(row.primary)}${hasCaution(row, "below_baseline", row.primary) ? " below-baseline" : ""}`;
/* A head's tags with their cautions, or the word for no tag. */
const tagsInWords = (row) => tagsOf(row).map((tag) => markedTag(row, tag)).join(", ") || row.primary;
/* The letter of a head's primary type, followed by a star if the tag is preliminary. */
const headLetter = (row) => letter(row.primary) + (hasCaution(row, "preliminary", row.primary) ? "*" : "");

/* The cautions that more than half of a type's tags have, with the number of tags that do: a page says them once and marks the exceptions. */
function commonCautions(tags) {
  const counts = Object.keys(DATA.cautions).map((column) => [column, tags.filter(([place, r]) => cautionColumns(r, place).includes(column)).length]);
  return Object.fromEntries(counts.filter(([, count]) => count > tags.length / 2));
}

/* The words of a tag's cautions beside tags of which most have the common ones: those it has besides, and those it lacks. */
function exceptionsOf(r, place, common) {
  const own = cautionColumns(r, place);
  return inBrackets(Object.entries(DATA.cautions).filter(([column]) => own.includes(column) !== column in common).map(([column, [word]]) => (column in common ? `not ${word}` : word)));
}

function headLink(row, text) {
  return el("a", { class: "head-link", href: `#${headName(row.layer, row.head)}` }, text || headName(row.layer, row.head));
}

const examplesAt = (layer) => DATA.examples.filter((e) => e.layer === layer);
const examplesOfHead = (row) => examplesAt(row.layer).filter((e) => e.head === row.head);

/* What is shown is in the address: a page and after a question mark its state. */
function addressed() {
  let hash = location.hash.slice(1);
  try { hash = decodeURIComponent(hash); } catch { /* a bare % is not an escape: keep it */ }
  const cut = hash.indexOf("?");
  return cut < 0 ? [hash, new URLSearchParams()] : [hash.slice(0, cut), new URLSearchParams(hash.slice(cut + 1))];
}
const stateOf = (name) => addressed()[1].get(name);

/* Keep a part of the state in the address, without a step in the browser's history; null takes it out. */
function setState(name, value) {
  const [page, state] = addressed();
  if (value === null) state.delete(name);
  else state.set(name, value);
  const message = state.toString();
  history.replaceState(null, "", `#${encodeURIComponent(page).replace(/%3D/g, "=")}${message ? `?${message}` : ""}`);
}

/* A table from a list of column names and rows of cells; cells are text or elements. */
function table(caption, columns, rows, numeric = [], wrap = false) {
  const align = (i) => (numeric.includes(i) ? "number" : null);
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { class: wrap ? "wrap" : null },
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, columns.map((c, i) => el("th", { scope: "col", class: align(i) }, c)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: align(i), "data-label": i ? columns[i] : null }, cell)))))));
}

/* How well the model predicts its run's own text; nothing if that was not measured. */
function lossLine() {
  const loss = DATA.info.text_loss;
  if (!loss) return null;
  const text = `Loss of the model on this text: ${number(loss.model)} nats per token; of token frequencies alone: ${number(loss.unigram)} (${counted(loss.tokens)} tokens; the model is better in ${counted(loss.better)} of ${counted(loss.windows)} windows).`;
  return el("p", { class: "loss" }, loss.model !== null && loss.model < loss.unigram ? text : el("strong", { class: "unsound" }, `${text} The model predicts this text worse than token frequencies: its tags may mean nothing.`));
}

function showTip(text, at) {
  const tip = PAGE.querySelector("#tip");
  tip.textContent = text;
  tip.hidden = !text;
  if (!text) return;
  // a notebook may hold it in a box that moves with its text: what is fixed is fixed there
  tip.style.left = tip.style.top = "0";
  const box = at.getBoundingClientRect(), origin = tip.getBoundingClientRect();
  const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
  const below = box.bottom + tip.offsetHeight + 12 < document.documentElement.clientHeight;
  tip.style.left = `${Math.max(4, left) - origin.left}px`;
  tip.style.top = `${(below ? box.bottom + 6 : box.top - tip.offsetHeight - 6) - origin.top}px`;
}

function describe(row) {
  const tags = !tagsOf(row).length && row.undecided ? `${row.primary}: ${row.undecided.description}` : tagsInWords(row);
  return `${headName(row.layer, row.head)} – ${tags}\n${tagsOf(row).length || row.undecided ? "" : "no tag, closest relation "}${row.relation}: mass ${number(row.mass)}, control ` +
    `${number(row.control)}, lift ${number(row.lift)} [${number(row.ci_low)}, ${number(row.ci_high)}]\n` +
    `first token ${number(row.first_token_mass)}, entropy ${number(row.entropy)}, ${row.shape || "no shape"}${DATA.means ? `\npicture: ${pictureOf(row)}` : ""}`;
}

/* Tokens as text that can be seen. */

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
