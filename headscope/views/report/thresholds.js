/* How much hangs on the thresholds: heads with a tag of each type, as floors and margins are multiplied. */

function thresholdsView() {
  const { said, curves } = DATA.thresholds;
  if (!curves.length) return null;
  const types = GROUPS.flatMap(([, own]) => own).filter((type) => curves.some((curve) => type in curve.types));
  const drawn = types.filter((type) => !rests(type));
  const most = Math.max(1, ...curves.flatMap((curve) => drawn.flatMap((type) => curve.types[type])));
  const columns = ["", "type", ...curves[0].factors.map((factor) => `× ${factor}`)];
  const rows = curves.flatMap((curve) => types.map((type, i) => [i ? "" : curve.meaning, type, ...curve.types[type].map(String)]));
  return el("section", { class: "thresholds" }, el("h2", {}, "Heads with a tag, by threshold"), el("p", {}, said),
    savable(el("div", {}, el("div", { class: "curves" }, curves.map((curve) => el("figure", {}, curvePlot(curve, drawn, most), el("figcaption", { class: "small" }, `times ${curve.meaning}`)))),
      el("p", { class: "legend" }, drawn.map((type) => chip(type)))), `${DATA.model.name} thresholds`),
    el("details", {}, el("summary", {}, "The numbers, with attention sinks"), table("Heads with the tag, by threshold", columns, rows, columns.map((_, i) => i).slice(2))));
}

function curvePlot(curve, types, most) {
  const [w, h, left, bottom, pad] = [300, 170, 28, 22, 8];
  const [low, high] = [Math.log(Math.min(...curve.factors)), Math.log(Math.max(...curve.factors))];
  const px = (factor) => left + ((Math.log(factor) - low) / (high - low || 1)) * (w - left - pad);
  const py = (tags) => h - bottom - (tags / most) * (h - bottom - pad);
  const at = curve.factors.indexOf(1);
  const say = types.map((type) => `${type} ${curve.types[type][0]} to ${curve.types[type].at(-1)}${at < 0 ? "" : `, now ${curve.types[type][at]}`}`).join("; ");
  const root = svg("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `heads with the tag as ${curve.meaning} goes from half to twice: ${say}` });
  for (const t of ticks(0, most).filter(Number.isInteger)) root.append(svg("line", { x1: left, x2: w - pad, y1: py(t), y2: py(t), class: "grid-line" }), text(left - 4, py(t) + 4, t, "end"));
  for (const t of [0.5, 1, 2]) root.append(text(px(t), h - 6, t, "middle"));
  root.append(svg("line", { x1: px(1), x2: px(1), y1: pad, y2: h - bottom, class: "twin-line" }));
  for (const type of types) root.append(svg("polyline", { class: `curve type-${typeClass(type)}`, points: curve.factors.map((factor, i) => `${px(factor).toFixed(1)},${py(curve.types[type][i]).toFixed(1)}`).join(" ") }));
  return root;
}
