/* The examples of a head: three at once, then any from its best to its worst queries. */

const kindOf = (example) => example.kind.replace(/^decile (\d+)$/, "decile $1 of 10") + (example.kind.startsWith("decile") ? "" : " query");

/* Attention that is written in hundredths, a letter each. */
const sharesOf = (text) => Array.from(text, (letter) => (letter.charCodeAt(0) - 40) / 100);

function unpack(packed, size) {
  const shares = sharesOf(packed), whole = shares.length === size * size;
  let place = 0;
  const rows = Array.from({ length: size }, (_, query) =>
    Array.from({ length: size }, (_, key) => (whole || key <= query ? shares[place++] : 0)));
  return Object.assign(rows, { whole });
}

/* An example as what the views of a pattern draw. */
function viewOf(example, type) {
  const matrix = unpack(example.pattern, example.tokens.length);
  // an ordinary text has no query of its own: the one that looks most sharply at a token before it
  const sharpest = () => matrix.map((row, query) => Math.max(0, ...row.slice(1, query))).reduce((best, share, i, all) => (share > all[best] ? i : best), 0);
  return {
    tokens: example.tokens, positions: example.positions, gaps: example.gaps, targets: example.targets, matrix, type,
    query: example.query >= 0 ? example.query : sharpest(),
    label: `attention pattern of ${headName(example.layer, example.head)}, ${example.kind}, ${example.window}`,
  };
}

/* What the excerpt does not show, in words. */
function leftOut(example) {
  const message = [`${number(example.outside)} of the query's attention is on tokens not shown`];
  if (example.more) message.push(`${counted(example.more)} of its targets are not shown`);
  return el("p", { class: "small" }, `${message.join("; ")}.`);
}

/* Rows and columns for circuitsvis: the shown tokens with their positions, the query and its targets
   marked; before them, where some are left out, a column for the attention on all others. */
function patternOf(example, matrix) {
  const mark = (i) => (i === example.query ? "▶ " : example.targets.includes(i) ? "★ " : "");
  const names = example.tokens.map((token, i) => mark(i) + (example.gaps.length ? `${example.positions[i]}:` : "") + visible(token));
  const rest = sharesOf(example.elsewhere);
  if (!example.gaps.length && rest.every((share) => share < 0.02)) return [names, matrix];
  return [["(not shown)", ...names], [[0, ...rest.map(() => 0)], ...matrix.map((row, i) => [rest[i], ...row])]];
}

function exampleView(example, key, type) {
  const view = viewOf(example, type), pinned = Number.parseInt(stateOf(`pin${key}`), 10);
  const arcs = arcView(view, { pinned: pinned >= 0 && pinned < view.tokens.length ? pinned : null, onpin: (token) => setState(`pin${key}`, token === null ? null : String(token)) });
  const about = example.query < 0
    ? `Ordinary text, ${example.window}`
    : [el("strong", {}, number(example.mass)), ` from “${visible(example.tokens[example.query]).trim()}”, ${kindOf(example)}`, el("span", { class: "code" }, ` ${example.window}, token ${example.positions[example.query]} of ${example.length}`)];
  const whole = el("details", { class: "whole" }, el("summary", {}, "whole pattern"));
  whole.addEventListener("toggle", () => {
    if (!whole.open || whole.querySelector("canvas")) return;
    const [tokens, attention] = patternOf(example, view.matrix);
    whole.append(heatView(view, (token) => arcs.querySelector(`[data-token="${token}"]`)?.click()), example.query >= 0 ? leftOut(example) : "",
      circuitDetails("open it in circuitsvis (▶ the query, ★ its targets)", view.label, "AttentionPattern", () => ({ tokens, attention, maskUpperTri: !view.matrix.whole })) || "");
  });
  return el("div", { class: "example", "data-kind": example.kind }, el("p", { class: "about" }, about), arcs, whole);
}

/* The best, a middling and the worst of a relation's examples, then a slider through all of them. */
function examplesOf(row, examples) {
  const relations = [...new Set(examples.map((example) => example.relation).filter(Boolean))];
  if (!relations.length) return el("p", { class: "small" }, examples.length ? "No relation has enough queries for examples of this head; below is its attention on ordinary text." : "This run kept no examples of this head.");
  const box = el("section", { class: "examples", "aria-label": "Examples" });
  const fill = () => {
    const relation = relations.includes(stateOf("relation")) ? stateOf("relation") : relations[0];
    const own = examples.filter((example) => example.relation === relation).sort((a, b) => b.mass - a.mass);
    const three = [...new Set([0, Math.floor(own.length / 2), own.length - 1])].map((i) => own[i]);
    const about = DATA.relations.find((r) => r.id === relation);
    const mainRelation = relationOf(row), strange = mainRelation && !relations.includes(mainRelation.id);
    const choose = relations.length > 1 ? el("div", { class: "filters", role: "group", "aria-label": "Examples of" }, relations.map((name) => el("button", {
      type: "button", class: "filter", "aria-pressed": String(name === relation), onclick: () => { for (const k of ["pin0", "pin1", "pin2", "pinS", "at"]) setState(k, null); setState("relation", name); fill(); },
    }, DATA.relations.find((r) => r.id === name).label))) : "";
    box.replaceChildren(el("h3", {}, "Examples, from its best to its worst queries"), choose,
      el("p", { class: "small" }, strange ? `No examples were kept for “${mainRelation.label}”; these are for “${about.label}”. ` : "", `Framed: the query. Underlined: ${about.meaning}. Arcs: the attention of the query. Point at a token to see its attention; click to pin it. “…”: omitted tokens.`),
      ...three.map((example, i) => exampleView(example, i, about.type)), slider(own, about));
  };
  fill();
  return box;
}

/* All its queries as a histogram by mass, and the kept ones one by one. */
function slider(own, about) {
  const at = Math.min(own.length - 1, Math.max(0, Number.parseInt(stateOf("at"), 10) || 0)), place = el("div", {});
  const counts = own[0].masses;
  const pointer = svg("line", { class: "pointer", y1: 0, y2: 70 });
  const go = (i) => {
    const x = (40 + 520 * Math.max(0, Math.min(1, own[i].mass))).toFixed(1);
    pointer.setAttribute("x1", x);
    pointer.setAttribute("x2", x);
    range.setAttribute("aria-valuetext", `${kindOf(own[i])}, ${number(own[i].mass)} on its targets`);
    place.replaceChildren(exampleView(own[i], "S", about.type));
  };
  const range = el("input", { type: "range", min: 0, max: own.length - 1, value: at, id: "decile", "aria-label": "example, from the best to the worst", oninput: (event) => { setState("at", event.target.value); setState("pinS", null); go(Number(event.target.value)); } });
  go(at);
  return el("details", { class: "all-queries", open: stateOf("at") !== null }, el("summary", {}, "All its queries, from best to worst"),
    counts.length ? histogram(counts, own, pointer, about.type) : "", el("p", {}, el("label", { for: "decile" }, "best "), range, " worst"), place);
}

function histogram(counts, own, pointer, type) {
  const most = Math.max(...counts), total = counts.reduce((a, b) => a + b, 0), step = 520 / counts.length;
  const root = svg("svg", { viewBox: "0 0 600 92", role: "img", class: `histogram type-${typeClass(type)}`, "aria-label": `mass of ${counted(total)} queries: ${counts.join(", ")} in ${counts.length} equal steps from 0 to 1` });
  counts.forEach((count, i) => root.append(svg("rect", { class: "column", x: (40 + i * step + 1).toFixed(1), width: (step - 2).toFixed(1), y: (70 - 62 * count / most).toFixed(1), height: (62 * count / most).toFixed(1) })));
  for (const example of own) root.append(svg("line", { class: "kept", x1: 40 + 520 * Math.min(1, example.mass), x2: 40 + 520 * Math.min(1, example.mass), y1: 70, y2: 76 }));
  root.append(pointer, ...[0, 0.5, 1].map((t) => text(40 + 520 * t, 90, t, "middle")));
  return el("figure", { class: "plot" }, savable(root, `${DATA.model.name} histogram ${type}`), el("figcaption", { class: "small" }, `Histogram of the mass, over a sample of ${counted(total)} queries. Ticks: the examples that the slider shows.`));
}

/* The same text for every head, and in circuitsvis all heads of the layer on it. */
function ordinaryOf(row, examples) {
  const own = examples.filter((example) => example.query < 0);
  const beside = examplesAt(row.layer).filter((example) => example.query < 0 && own.length && example.window === own[0].window);
  if (!own.length) return "";
  return el("section", { class: "ordinary" }, el("h3", {}, "On ordinary text"), own.map((example) => exampleView(example, "T", row.primary)),
    circuitDetails(`open all ${plural(beside.length, "head")} of layer ${layerName(row.layer)} on this text in circuitsvis`, `heads of ${layerName(row.layer)}`, "AttentionHeads", () => ({
      tokens: own[0].tokens.map(visible), attention: beside.map((example) => unpack(example.pattern, example.tokens.length)), attentionHeadNames: beside.map((example) => headName(example.layer, example.head)),
    }), headName(row.layer, row.head)) || "");
}

/* A whole pattern as a small picture: queries downward, keys to the right, the target cells framed; a click on a row shows it in the arcs. */

const ZOOMS = [8, 14, 22];

function heatView(view, onrow = () => {}) {
  const size = view.tokens.length, canvas = el("canvas", { class: "heat", role: "img", "aria-label": `${view.label}: ${size} queries downward, ${size} keys to the right` });
  const message = el("p", { class: "small message" }, "Queries downward, keys to the right. Framed: the targets of the query. Point at a cell for its number.");
  let zoom = 0;
  canvas.redraw = () => {
    const unit = ZOOMS[zoom], pen = canvas.getContext("2d"), ink = inkOf(view.type);
    canvas.width = canvas.height = size * unit;
    view.matrix.forEach((row, query) => row.forEach((share, key) => {
      pen.fillStyle = `rgba(${ink}, ${Math.sqrt(Math.min(1, share))})`;
      if (share > 0) pen.fillRect(key * unit, query * unit, unit, unit);
    }));
    pen.strokeStyle = getComputedStyle(document.body).color;
    for (const key of view.targets) pen.strokeRect(key * unit + 0.5, view.query * unit + 0.5, unit - 1, unit - 1);
  };
  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientY - box.top, event.clientX - box.left].map((at) => Math.min(size - 1, Math.max(0, Math.floor((at / box.width) * size))));
  };
  const place = (i) => (view.positions && view.positions.length ? ` at ${view.positions[i]}` : "");
  canvas.addEventListener("mousemove", (event) => {
    const [query, key] = cellAt(event);
    message.textContent = `“${visible(view.tokens[query]).trim()}”${place(query)} gives “${visible(view.tokens[key]).trim()}”${place(key)} ${number(view.matrix[query][key])}`;
  });
  canvas.addEventListener("click", (event) => onrow(cellAt(event)[0]));
  const larger = el("button", { type: "button", class: "fold", onclick: () => { zoom = (zoom + 1) % ZOOMS.length; canvas.redraw(); } }, "zoom");
  const box = el("div", { class: `heat-view type-${typeClass(view.type)}` }, el("div", { class: "scroll" }, canvas), message, larger, " ", saveButtons(canvas, `${view.label} pattern`));
  canvas.redraw();
  return box;
}

/* The full view: circuitsvis, unpacked when it is first opened, in a frame of its own that takes the page's colours. */

const CIRCUITSVIS = document.getElementById("circuitsvis");

/* circuitsvis draws on white alone: in the dark its picture is turned over, and keeps its hues. The background is what becomes the page's. */
const INVERTED = "#view{background:#e4e4e8;color:#101013;filter:invert(1) hue-rotate(180deg)}";

/* circuitsvis opens on the first of its heads and takes no other by its props: a click on a head's name chooses it. */
const chooseHead = (name) => {
  const own = [...document.querySelectorAll("#view h4")].find((title) => title.textContent === name);
  if (own) own.click();
  else setTimeout(() => chooseHead(name), 30);
};

/* The page inside the frame, open on the head `first` where there are several. Tokens go in as data, with nothing in them that HTML could read. */
async function framePage(view, props, first) {
  const style = getComputedStyle(document.body);
  const data = JSON.stringify(props).replace(/[<>&\u2028\u2029]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `<!doctype html><html lang="en" style="color-scheme:${dark.matches ? "dark" : "light"}"><meta charset="utf-8"><title>circuitsvis</title>
<style>body{margin:0;padding:8px;background:${style.backgroundColor};color:${style.color};font:14px/1.4 system-ui,sans-serif} #view *{white-space:nowrap;overflow:visible;text-overflow:clip}
#view select,#view input,#view button{color:inherit;background:transparent} ${dark.matches ? INVERTED : ""}</style>
<div id="view"></div><script>${await textOf(CIRCUITSVIS.textContent)}</${"script"}><script>CircuitsVis.render("view",CircuitsVis.${view},${data})${first ? `;const chooseHead=${chooseHead};chooseHead("${first}")` : ""}</${"script"}></html>`;
}

function circuitFrame(label, view, props, first) {
  const frame = el("iframe", { class: "circuit", title: label });
  const fit = () => { frame.style.height = `${Math.min(900, frame.contentDocument.documentElement.scrollHeight + 12)}px`; };
  framePage(view, props, first).then((page) => {
    frame.addEventListener("load", () => setTimeout(fit, 300));
    frame.srcdoc = page;
  });
  return frame;
}

/* A part that draws the full view when it is opened, and nothing if the page was made without circuitsvis. */
function circuitDetails(message, label, view, props, first = null) {
  if (!CIRCUITSVIS) return null;
  const details = el("details", { class: "pattern" }, el("summary", {}, message));
  details.addEventListener("toggle", () => {
    if (details.open && !details.querySelector("iframe")) details.append(circuitFrame(label, view, props(), first));
  });
  return details;
}
