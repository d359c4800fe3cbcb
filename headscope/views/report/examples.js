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
  const said = [`${number(example.outside)} of the query's attention is on tokens not shown`];
  if (example.more) said.push(`${example.more} of its targets are not shown`);
  return el("p", { class: "small" }, `${said.join("; ")}.`);
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
    const said = relationOf(row), strange = said && !relations.includes(said.id);
    const choose = relations.length > 1 ? el("div", { class: "filters", role: "group", "aria-label": "Examples of" }, relations.map((name) => el("button", {
      type: "button", class: "filter", "aria-pressed": String(name === relation), onclick: () => { for (const k of ["pin0", "pin1", "pin2", "pinS", "at"]) setState(k, null); setState("relation", name); fill(); },
    }, DATA.relations.find((r) => r.id === name).spoken))) : "";
    box.replaceChildren(el("h3", {}, "Examples, from its best to its worst queries"), choose,
      el("p", { class: "small" }, strange ? `No examples were kept for “${said.spoken}”; these are for “${about.spoken}”. ` : "", `Framed: the query. Underlined: ${about.meaning}. Arcs: the attention of the query. Point at any token to see where it looks; click to pin it. “…”: tokens left out.`),
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
  const root = svg("svg", { viewBox: "0 0 600 92", role: "img", class: `histogram type-${typeClass(type)}`, "aria-label": `mass of ${total} queries: ${counts.join(", ")} in ${counts.length} equal steps from 0 to 1` });
  counts.forEach((count, i) => root.append(svg("rect", { class: "column", x: (40 + i * step + 1).toFixed(1), width: (step - 2).toFixed(1), y: (70 - 62 * count / most).toFixed(1), height: (62 * count / most).toFixed(1) })));
  for (const example of own) root.append(svg("line", { class: "kept", x1: 40 + 520 * Math.min(1, example.mass), x2: 40 + 520 * Math.min(1, example.mass), y1: 70, y2: 76 }));
  root.append(pointer, ...[0, 0.5, 1].map((t) => text(40 + 520 * t, 90, t, "middle")));
  return el("figure", { class: "plot" }, savable(root, `${DATA.model.name} histogram ${type}`), el("figcaption", { class: "small" }, `Histogram of the mass, over a sample of ${total} queries. Ticks: the examples that the slider shows.`));
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
