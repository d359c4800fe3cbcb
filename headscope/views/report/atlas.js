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
    GROUPS.map(([title, types]) => [title, types.filter((type) => untyped(type) || HAD_TYPES.includes(type))]).filter(([, types]) => types.length)
      .map(([title, types]) => el("span", { class: "group" }, el("span", { class: "small" }, title), types.map(filter))));
  const isShort = DATA.layers.length <= 12; // its rows end before what stands beside them
  const page = el("section", { class: "atlas", "aria-label": "Atlas" },
    findings(), filters,
    el("div", { class: "beside" }, el("div", { class: "atlas-grid", style: `--heads:${DATA.heads}` }, grid(), isShort ? aboutRun() : null),
      el("div", { class: "aside" }, signs(), summaryTable(), bareTypes(), undecidedList(), coverageMap(), isShort ? null : aboutRun())));
  setTimeout(() => { applyFilter(); });
  return page;
}

/* How to read a cell: each sign beside what it means. A sign that no cell has is left out. */
function signs() {
  const some = (test) => DATA.rows.some(test), caution = (column) => some((row) => hasCaution(row, column, row.primary));
  const typed = DATA.rows.find((row) => !untyped(row.primary) && !isSink(row.primary)), type = typed ? typed.primary : UNCLASSIFIED;
  const swatch = (classes, inside = "", style = "--strength:.7") => el("span", { class: `sign ${classes}`, style, "aria-hidden": "true" }, inside);
  const own = `type-${typeClass(type)}`, mark = (text) => el("span", { class: "letter" }, text);
  const entries = [
    typed && [[swatch(own, mark(letter(type)), "--strength:.1"), swatch(own, mark(letter(type)), "--strength:1")], "letter and colour: primary type; the stronger, the larger the lift (mass − control)"],
    THUMB && some((row) => row.first_token_mass > 0.1) && [swatch("type-unclassified", el("i", { class: "sink", style: "height:70%" })), "bar: share of the attention on the first token, which the picture excludes"],
    some((row) => tagsOf(row).length > 1) && [swatch(own, el("span", { class: "more" }, el("i", { class: own }))), "dot: another tag"],
    some((row) => isSink(row.primary)) && [swatch(`type-${typeClass(SINKS[0])}`, mark(letter(SINKS[0]))), "pale: attention sink"],
    some((row) => row.primary === UNCLASSIFIED) && [swatch("type-unclassified"), "grey: no tag"],
    some((row) => row.primary === UNDECIDED) && [swatch("type-undecided", mark(letter(UNDECIDED))), "dashed: not identifiable, because this text does not separate the relation from a baseline"],
    caution("preliminary") && [swatch(own, mark(`${letter(type)}*`)), `star: ${DATA.cautions.preliminary.join(": ")}`],
    caution("below_baseline") && [swatch(`${own} below-baseline`), `outline: ${DATA.cautions.below_baseline.join(": ")}`],
  ].filter(Boolean);
  return el("section", { class: "signs" }, el("h2", {}, "How to read a cell"), THUMB ? el("p", { class: "small" }, pictureLine()) : null,
    el("ul", { class: THUMB ? "pictures" : null }, entries.map(([picture, meaning]) => el("li", {}, el("span", { class: "swatch" }, picture), el("span", {}, meaning)))));
}

/* What the pictures of heads show. */
function pictureLine() {
  const [text, ...others] = DATA.means.shown;
  const where = others.length ? ` Heads whose primary relation is measured on other input: ${others.join("; ")}.` : "";
  return `Picture: mean attention, queries downward and keys to the right, on ${text}.${where}`;
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
    href: `#${name}`, class: cellClass(row), "data-head": name, "data-primary": row.primary,
    "data-tags": tags.join(" "), style: `--strength:${strength.toFixed(2)}`,
    "aria-label": `${name}, ${tagsInWords(row)}, lift ${number(row.lift)}`,
    onmouseenter: (event) => { showTip(describe(row), event.currentTarget); }, onmouseleave: () => { showTip(""); },
    onfocus: (event) => { showTip(describe(row), event.currentTarget); }, onblur: () => { showTip(""); },
  }, thumb(row), THUMB ? sinkBar(row) : null, el("span", { class: "letter", "aria-hidden": "true" }, headLetter(row)),
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
  const rows = MARKED.filter((type) => HAD_TYPES.includes(type) || (untyped(type) && DATA.rows.some((row) => row.primary === type))).map((type) => {
    const primary = DATA.rows.filter((row) => row.primary === type), tagged = taggedWith(type);
    const [place, relation] = strongestOf(type)[0] || [];
    return [el("span", { class: "value" }, untyped(type) ? type : typeLink(type)), String(primary.length), untyped(type) ? "" : String(tagged.length), tagged.length ? el("span", { class: "value" }, layersOf(tagged)) : "", ...(relation ? [headLink(DATA.rows[place]), `${relation.label}, lift ${number(relation.lift[place])}${cautionsOf(relation, place)}`] : ["", ""])];
  });
  return table("Heads by type", ["type", "primary", "tagged", "layers", "strongest", "by"], rows, [1, 2]);
}

/* The types that no head has, folded: those that none has on this text, and those with too few queries to tell. */
function bareTypes() {
  if (!BARE_TYPES.length) return null;
  const [none, few] = [BARE_TYPES.filter(countable), BARE_TYPES.filter((type) => !countable(type))];
  const line = (words, types) => (types.length ? el("p", {}, words, listed(types.map(typeLink)), ".") : null);
  return el("details", { class: "bare" }, el("summary", {}, `${plural(BARE_TYPES.length, "type")} without a head`), line("No head has the tag: ", none), line("Too few queries in this text: ", few));
}

/* Heads whose relation the text does not separate from a baseline. */
function undecidedList() {
  const groups = new Map();
  for (const row of DATA.rows.filter((own) => own.undecided)) groups.set(row.undecided.description, [...(groups.get(row.undecided.description) || []), row]);
  if (!groups.size) return null;
  const items = [...groups].sort((a, b) => b[1].length - a[1].length).map(([message, own]) =>
    el("li", {}, `${message} (hard queries: ${own[0].undecided.few}): `, own.flatMap((row, i) => [i ? " " : "", headLink(row)])));
  return el("section", { class: "undecided" }, el("h2", {}, "Not identifiable"), el("ul", {}, items));
}

/* What a run found, in words, and the facts of the run. */

/* "a, b and c" of texts or elements. */
function listed(items) {
  return items.flatMap((item, i) => [i === 0 ? "" : i === items.length - 1 ? " and " : ", ", item]);
}

function layersOf(rows) {
  const own = [...new Set(rows.map((row) => row.layer))].sort((a, b) => a - b);
  return own.length === 1 ? layerName(own[0]) : `${layerName(own[0])}–${layerName(own.at(-1))}`;
}

const taggedWith = (type) => DATA.rows.filter((row) => tagsOf(row).includes(type));

/* Two sentences: how many heads have which tags, and the evidence of the one with the largest lift. */
function findings() {
  const types = ALL_TYPES.filter((type) => !isSink(type) && countable(type) && taggedWith(type).length).sort((a, b) => taggedWith(b).length - taggedWith(a).length);
  const tagged = DATA.rows.filter((row) => tagsOf(row).some((type) => !isSink(type))).length;
  // of heads with several types the numbers in brackets add up to more than all
  const several = types.reduce((sum, type) => sum + taggedWith(type).length, 0) > tagged;
  const count = (test, one, many) => { const heads = DATA.rows.filter(test).length; return heads ? [`${counted(heads)} ${heads === 1 ? one : many}`] : []; };
  const others = [...count((row) => isSink(row.primary), "is only an attention sink", "are only attention sinks"), ...count((row) => row.primary === UNDECIDED, "is not identifiable", "are not identifiable"), ...count((row) => row.primary === UNCLASSIFIED, "has no tag", "have no tag")];
  return el("p", { class: "findings" },
    `${counted(tagged)} of ${plural(DATA.rows.length, "head")} have a functional tag`, types.length ? [" (", listed(types.map((type) => el("span", {}, `${counted(taggedWith(type).length)} `, typeLink(type)))), several ? "; some have several)" : ")"] : "",
    others.length ? ["; ", listed(others)] : "", ". ", types.length ? largestLift(types.map((type) => strongestOf(type)[0])) : "");
}

function largestLift(heads) {
  const [place, r] = heads.reduce((best, next) => (next[1].lift[next[0]] > best[1].lift[best[0]] ? next : best));
  return [headLink(DATA.rows[place]), ` has the largest lift (mass − control, with its 95 % interval): ${attentionOn(r, place)}.`];
}

function aboutRun() {
  const sensitivity = DATA.threshold_sensitivity;
  return el("section", { class: "this-run" }, el("h2", {}, "This run"), runFacts(), lossLine(), sensitivity ? el("p", { class: "small" }, sensitivity) : null, columnsInWords());
}

function runFacts() {
  const { model, info } = DATA, read = info.text_read || {}, settings = info.settings || {};
  const pairs = [
    ["model", [model.architecture, model.parameters && `${counted(model.parameters)} parameters`].filter(Boolean).join(", ")],
    ["text", [(info.corpora && info.corpora.asked || []).join(", "), Number.isFinite(read.tokens) && `${counted(read.tokens)}${read.tokens < read.of ? ` of ${counted(read.of)}` : ""} tokens`].filter(Boolean).join(", ")],
    ["relations", info.decidable && `this text can decide ${counted(info.decidable.relations)} of ${counted(info.decidable.of)}`],
    ["null model", settings.null_model ? "attention weights are shuffled: every tag is false" : ""],
    ["engine", info.engine],
    ["not the default", DATA.not_default],
  ].filter(([, value]) => value);
  return el("dl", { class: "facts" }, pairs.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))));
}

/* Layers × heads, each cell shaded by the share of the head's bits that its feature model explains. */

const explainedRows = () => DATA.rows.filter((row) => Number.isFinite(row.explained));

function coverageMap() {
  const known = explainedRows();
  if (!known.length) return null;
  const mean = known.reduce((sum, row) => sum + row.explained, 0) / known.length;
  const title = "Share of each head's bits that its feature model explains, in per cent";
  const head = el("tr", {}, el("td", {}), Array.from({ length: DATA.heads }, (_, h) => el("th", { scope: "col" }, `H${h}`)));
  const rows = DATA.layers.map((layer) =>
    el("tr", {}, el("th", { scope: "row" }, layerName(layer)),
      Array.from({ length: DATA.heads }, (_, h) => el("td", {}, explainedCell(rowOf(layer, h))))));
  return el("section", { class: "coverage" }, el("h2", {}, "Feature models"),
    el("p", { class: "small" }, `A model of a few features predicts a head's attention on held-out documents. Each cell is the share of the bits above uniform attention that it explains, in per cent; the mean over heads is ${percent(mean)}.`),
    savable(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      el("table", { class: "grid", style: `--heads:${DATA.heads}` }, el("caption", { class: "hidden" }, title), el("thead", {}, head), el("tbody", {}, rows))), `${DATA.model.name} feature models`));
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
