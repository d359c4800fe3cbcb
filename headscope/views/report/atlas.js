/* The atlas: layers × heads, each cell a small picture of its head in the colour of its primary type. */

let shownType = null;

function atlasPage() {
  const asked = stateOf("type");
  shownType = MARKED.includes(asked) ? asked : null;
  const counts = (type) => DATA.rows.filter((row) => row.primary === type || tagsOf(row).includes(type)).length;
  const filter = (type) => el("button", {
    type: "button", class: `filter type-${typeClass(type)}`, "aria-pressed": String(shownType === type), "data-type": type,
    onclick: () => { shownType = shownType === type ? null : type; setState("type", shownType); applyFilter(); },
  }, el("span", { class: "letter" }, letter(type) || "·"), ` ${type} `, el("span", { class: "count" }, countable(type) ? String(counts(type)) : ""));
  const filters = el("div", { class: "filters", role: "group", "aria-label": "Show heads with the tag" },
    GROUPS.map(([title, types]) => el("span", { class: "group" }, el("span", { class: "small" }, title), types.map(filter))));
  const page = el("section", { class: "atlas", "aria-label": "Atlas" },
    findings(), runFacts(), lossLine(), filters,
    el("div", { class: "beside" }, el("div", { class: "atlas-grid" }, grid(), legendLine()), el("div", { class: "aside" }, summaryTable(), coverageMap())), undecidedList(), DATA.floors ? el("p", {}, DATA.floors) : null);
  setTimeout(() => { applyFilter(); });
  return page;
}

/* How to read a cell. */
function legendLine() {
  const cells = "Letter and colour: the primary type; the larger the lift (mass − control), the stronger the colour. Dots: further tags. Pale: an attention sink. Dashed: not identifiable, because this text cannot tell it from a simple rule. Grey: unclassified.";
  if (!THUMB) return el("p", { class: "small" }, cells);
  const [text, ...others] = DATA.means.shown;
  const where = others.length ? ` A head whose primary relation is measured on other input is drawn on that: ${others.join("; ")}.` : "";
  const pictures = `Picture: mean attention, queries downward and keys to the right, on ${text}.${where} The first token is left out; the bar at the left edge is the share of the attention on it.`;
  return el("p", { class: "small" }, `${pictures} ${cells}`);
}

function grid() {
  const head = el("tr", {}, el("td", {}), Array.from({ length: DATA.heads }, (_, h) => el("th", { scope: "col" }, `H${h}`)));
  const rows = DATA.layers.map((layer) =>
    el("tr", {}, el("th", { scope: "row" }, layerName(layer)),
      Array.from({ length: DATA.heads }, (_, h) => el("td", {}, cell(rowOf(layer, h))))));
  const box = el("table", { class: THUMB ? "grid pictures" : "grid", style: `--heads:${DATA.heads}` }, el("caption", { class: "hidden" }, "Heads by layer"), el("thead", {}, head), el("tbody", {}, rows));
  box.addEventListener("keydown", moveBetweenCells);
  return savable(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Heads by layer" }, box), `${DATA.model.name} atlas`);
}

function cell(row) {
  const tags = tagsOf(row);
  const more = tags.filter((tag) => tag !== row.primary);
  const name = headName(row.layer, row.head);
  const strength = untyped(row.primary) || isSink(row.primary) ? 0 : Math.max(0, Math.min(1, row.lift));
  return el("a", {
    href: `#${name}`, class: `cell type-${typeClass(row.primary)}`, "data-head": name, "data-primary": row.primary,
    "data-tags": tags.join(" "), style: `--strength:${strength.toFixed(2)}`,
    "aria-label": `${name}, ${tags.join(", ") || row.primary}, lift ${number(row.lift)}`,
    onmouseenter: (event) => { showTip(describe(row), event.currentTarget); }, onmouseleave: () => { showTip(""); },
    onfocus: (event) => { showTip(describe(row), event.currentTarget); }, onblur: () => { showTip(""); },
  }, thumb(row), THUMB ? sinkBar(row) : null, el("span", { class: "letter", "aria-hidden": "true" }, letter(row.primary)),
  more.length ? el("span", { class: "more", "aria-hidden": "true" }, more.map((tag) => el("i", { class: `type-${typeClass(tag)}` }))) : null);
}

function applyFilter() {
  for (const node of document.querySelectorAll(".cell")) {
    const has = !shownType || node.dataset.primary === shownType || node.dataset.tags.split(" ").includes(shownType);
    node.classList.toggle("faded", !has);
  }
  for (const button of document.querySelectorAll(".filter")) {
    button.setAttribute("aria-pressed", String(button.dataset.type === shownType));
  }
}

function moveBetweenCells(event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const row = step && parseHead(event.target.dataset.head || "");
  if (!row) return;
  event.preventDefault();
  const next = document.querySelector(`.cell[data-head="${headName(DATA.layers[DATA.layers.indexOf(row.layer) + step[0]], row.head + step[1])}"]`);
  if (next) next.focus();
}

function summaryTable() {
  const rows = MARKED.map((type) => {
    const primary = DATA.rows.filter((row) => row.primary === type);
    if (!countable(type)) return [el("a", { href: `#type=${encodeURIComponent(type)}` }, type), "", "", "", "too few queries"];
    const tagged = untyped(type) ? "" : String(DATA.rows.filter((row) => tagsOf(row).includes(type)).length);
    const [place, relation] = strongestOf(type)[0] || [];
    const name = untyped(type) ? type : el("a", { href: `#type=${encodeURIComponent(type)}` }, type);
    return [name, String(primary.length), tagged, ...(relation ? [headLink(DATA.rows[place]), `${relation.label}, lift ${number(relation.lift[place])}`] : ["", ""])];
  });
  return table("Heads by type", ["type", "primary", "with the tag", "strongest", "by"], rows, [1, 2], true);
}

/* Heads of which the text cannot say whether they follow a relation or a simple rule. */
function undecidedList() {
  const groups = new Map();
  for (const row of DATA.rows.filter((own) => own.undecided)) groups.set(row.undecided.description, [...(groups.get(row.undecided.description) || []), row]);
  if (!groups.size) return null;
  const items = [...groups].sort((a, b) => b[1].length - a[1].length).map(([message, own]) =>
    el("li", {}, `${message} (they differ at ${own[0].undecided.few} queries): `, own.flatMap((row, i) => [i ? " " : "", headLink(row)])));
  return el("section", { class: "undecided" }, el("h2", {}, "Not identifiable"), el("ul", {}, items));
}

/* What a run found, in words, and the facts of the run. */

const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/* "a, b and c" of texts or elements. */
function listed(items) {
  return items.flatMap((item, i) => [i === 0 ? "" : i === items.length - 1 ? " and " : ", ", item]);
}

function layersOf(rows) {
  const own = [...new Set(rows.map((row) => row.layer))].sort((a, b) => a - b);
  return own.length === 1 ? layerName(own[0]) : `${layerName(own[0])} to ${layerName(own.at(-1))}`;
}

function findings() {
  const counted = ALL_TYPES.filter((type) => !isSink(type) && countable(type))
    .map((type) => [type, DATA.rows.filter((row) => tagsOf(row).includes(type))]).filter(([, own]) => own.length).sort((a, b) => b[1].length - a[1].length);
  const acting = DATA.rows.filter((row) => tagsOf(row).some((type) => !isSink(type)));
  const message = counted.map(([type, own]) =>
    el("span", {}, `${own.length} `, el("a", { href: `#type=${encodeURIComponent(type)}` }, type), ` (${layersOf(own)}; strongest `, headLink(DATA.rows[strongestOf(type)[0][0]]), ")"));
  const count = (test) => DATA.rows.filter(test).length;
  const others = [[count((row) => isSink(row.primary)), "only look at an attention sink, such as the first token"], [count((row) => row.primary === UNDECIDED), "not identifiable (this text cannot distinguish what they do from a baseline)"], [count((row) => row.primary === UNCLASSIFIED), "unclassified (no tag)"]]
    .filter(([heads]) => heads).map(([heads, what]) => `${heads} ${what}`);
  const first = DATA.rows.map((row) => row.first_token_mass).filter(Number.isFinite);
  const mean = first.reduce((sum, share) => sum + share, 0) / first.length;
  return el("div", { class: "findings" },
    el("p", {},
      `${acting.length} of ${plural(DATA.rows.length, "head")} have a tag for where they look`, message.length ? [": ", listed(message)] : "", ". ",
      others.length ? ["The others: ", listed(others), ". "] : "",
      first.length ? `On average ${Math.round(100 * mean)} % of a head's attention lies on the first token.` : ""),
    counted.length ? clearest(counted.map(([type]) => strongestOf(type)[0])) : "");
}

/* The head of the largest lift in a sentence, with what a tag had to pass where the words first stand. */
function clearest(heads) {
  const [place, relation] = heads.reduce((best, next) => (next[1].lift[next[0]] > best[1].lift[best[0]] ? next : best));
  return el("p", {}, "The clearest is ", headLink(DATA.rows[place]), `: ${number(relation.mass[place])} of its attention (the mass) is on ${relation.meaning}${relation.label === relation.meaning ? "" : ` (${relation.label})`}, and ${strictestControl(relation, place)}. The lift is mass − control. `,
    "A tag requires 1.5 times the mass of every control and, for words, that the head prefers the target at hard queries, where the best baseline such as “the nearest verb” is wrong.");
}

function runFacts() {
  const { model, info } = DATA, read = info.text_read || {}, settings = info.settings || {};
  const whole = (value) => value.toLocaleString("en");
  const pairs = [
    ["model", [model.architecture, model.parameters && `${whole(model.parameters)} parameters`].filter(Boolean).join(", ")],
    ["text", [(info.corpora && info.corpora.asked || []).join(", "), Number.isFinite(read.tokens) && `${whole(read.tokens)}${read.tokens < read.of ? ` of ${whole(read.of)}` : ""} tokens`].filter(Boolean).join(", ")],
    ["relations", whole(DATA.relations.length)],
    ["null model", settings.null_model ? "attention weights are shuffled: every tag is false" : ""],
    ["engine", info.engine],
    ["not the default", DATA.not_default],
  ].filter(([, value]) => value);
  return el("dl", { class: "facts" }, pairs.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))));
}

/* What rules explain: layers × heads, each cell shaded by the share of the head's bits that its rule explains. */

const explainedRows = () => DATA.rows.filter((row) => Number.isFinite(row.explained));

function coverageMap() {
  const known = explainedRows();
  if (!known.length) return null;
  const mean = known.reduce((sum, row) => sum + row.explained, 0) / known.length;
  const title = "Share of each head's bits that its rule explains, in per cent";
  const head = el("tr", {}, el("td", {}), Array.from({ length: DATA.heads }, (_, h) => el("th", { scope: "col" }, `H${h}`)));
  const rows = DATA.layers.map((layer) =>
    el("tr", {}, el("th", { scope: "row" }, layerName(layer)),
      Array.from({ length: DATA.heads }, (_, h) => el("td", {}, explainedCell(rowOf(layer, h))))));
  return el("section", { class: "coverage" }, el("h2", {}, "What rules explain"),
    el("p", { class: "small" }, `A rule of a few features predicts a head's attention on documents that it was not fitted on. Shown is the share that it explains of the bits above uniform attention, in per cent; ${percent(mean)} on average over heads. Pale: hardly explained.`),
    savable(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      el("table", { class: "grid", style: `--heads:${DATA.heads}` }, el("caption", { class: "hidden" }, title), el("thead", {}, head), el("tbody", {}, rows))), `${DATA.model.name} what rules explain`));
}

const percent = (share) => `${Math.round(100 * share)}`;

function explainedCell(row) {
  if (!Number.isFinite(row.explained)) return "";
  const name = headName(row.layer, row.head);
  const message = `${name}, ${percent(row.explained)} per cent explained: ${row.feature_model}`;
  return el("a", {
    href: `#${name}`, class: "share", "data-explained": name, style: `--strength:${Math.max(0, Math.min(1, row.explained)).toFixed(2)}`, "aria-label": message,
    onmouseenter: (event) => showTip(message, event.currentTarget), onmouseleave: () => showTip(""),
    onfocus: (event) => showTip(message, event.currentTarget), onblur: () => showTip(""),
  }, percent(row.explained));
}
