/* Every head as a point, any number of heads.csv or any relation's lift on either axis. */

const AXES = [
  ...["lift", "mass", "control", "first_token_mass", ...(DATA.rows.some((row) => Number.isFinite(row.sink_share)) ? ["sink_share"] : []), "entropy", "mean_distance", "variability", "layer", "q_value"]
    .map((name) => ({ name, value: (row) => row[name] })),
  ...DATA.relations.map((r) => ({ name: `lift of ${r.id}`, value: (row) => r.lift[placeOf(row.layer, row.head)] })),
];
const scatterState = { x: "entropy", y: "lift" };
const narrow = window.matchMedia("(max-width: 700px)");
narrow.addEventListener("change", () => { for (const plot of document.querySelectorAll(".plot")) drawScatter(plot); });

function scatterPage() {
  for (const axis of ["x", "y"]) if (AXES.some((a) => a.name === stateOf(axis))) scatterState[axis] = stateOf(axis);
  const plot = el("div", { class: "plot" });
  const choose = (axis, label) => {
    const select = el("select", { id: `axis-${axis}`, onchange: (event) => { scatterState[axis] = event.target.value; setState(axis, event.target.value); drawScatter(plot); } },
      AXES.map((a) => el("option", { value: a.name, selected: a.name === scatterState[axis] }, a.name)));
    return el("span", {}, el("label", { for: `axis-${axis}` }, label), " ", select, " ");
  };
  const page = el("section", { class: "scatter", "aria-label": "Scatter" },
    el("p", { class: "lead" }, "Every head as a point; click one for its page."),
    el("p", {}, choose("x", "across"), choose("y", "up")), savable(el("div", {}, plot, el("p", { class: "legend" }, MARKED.filter((t) => DATA.rows.some((row) => row.primary === t)).map((t) => chip(t, `${letter(t) || "·"} ${t}`)))), `${DATA.model.name} scatter`));
  drawScatter(plot);
  return page;
}

function ticks(low, high) {
  const raw = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const all = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) all.push(Number(t.toPrecision(6)));
  return all;
}

function drawScatter(plot) {
  const [x, y] = ["x", "y"].map((axis) => AXES.find((a) => a.name === scatterState[axis]));
  const points = DATA.rows.map((row) => [row, x.value(row), y.value(row)]).filter(([, a, b]) => a !== null && b !== null);
  // on a narrow screen as many units across as pixels there are, so that text and points keep their size
  const [w, h, left, bottom, pad] = narrow.matches ? [360, 480, 40, 40, 12] : [760, 460, 56, 40, 12];
  const range = (i) => {
    const values = points.map((p) => p[i]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = (high - low || 1) * 0.04;
    return [low - room, high + room];
  };
  const [[x0, x1], [y0, y1]] = points.length ? [range(1), range(2)] : [[0, 1], [0, 1]];
  const px = (v) => left + ((v - x0) / (x1 - x0)) * (w - left - pad);
  const py = (v) => h - bottom - ((v - y0) / (y1 - y0)) * (h - bottom - pad);
  const root = svg("svg", { viewBox: `0 0 ${w} ${h}`, role: "group", "aria-label": `${y.name} against ${x.name}` });
  for (const t of ticks(x0, x1)) root.append(svg("line", { x1: px(t), x2: px(t), y1: pad, y2: h - bottom, class: "grid-line" }), text(px(t), h - bottom + 16, t, "middle"));
  for (const t of ticks(y0, y1)) root.append(svg("line", { x1: left, x2: w - pad, y1: py(t), y2: py(t), class: "grid-line" }), text(left - 6, py(t) + 4, t, "end"));
  root.append(text((w + left) / 2, h - 4, x.name, "middle"), text(4, pad, y.name, "start"));
  // heads with a tag come last and lie on top
  const rank = (row) => (row.primary === UNCLASSIFIED ? 0 : isSink(row.primary) ? 1 : 2);
  for (const [row, a, b] of points.sort((one, other) => rank(one[0]) - rank(other[0]))) {
    const name = headName(row.layer, row.head);
    const link = svg("a", { href: `#${name}`, "aria-label": `${name}, ${row.primary}, ${x.name} ${number(a)}, ${y.name} ${number(b)}` },
      svg("circle", { cx: px(a), cy: py(b), r: row.primary === UNCLASSIFIED ? 3 : 7, class: `dot type-${typeClass(row.primary)}`, "data-head": name }));
    if (row.primary !== UNCLASSIFIED) link.append(text(px(a), py(b) + 3.5, letter(row.primary), "middle", `dot-letter${isSink(row.primary) ? " of-sink" : ""}`));
    for (const event of ["mouseenter", "focus"]) link.addEventListener(event, () => showTip(describe(row), link));
    for (const event of ["mouseleave", "blur"]) link.addEventListener(event, () => showTip(""));
    root.append(link);
  }
  plot.replaceChildren(root);
}

function text(x, y, content, anchor, look = "") {
  const node = svg("text", { x, y, "text-anchor": anchor, class: look });
  node.textContent = String(content);
  return node;
}
