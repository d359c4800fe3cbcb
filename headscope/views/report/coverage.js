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
  const said = `${name}, ${percent(row.explained)} per cent explained: ${row.rule}`;
  return el("a", {
    href: `#${name}`, class: "share", "data-explained": name, style: `--strength:${Math.max(0, Math.min(1, row.explained)).toFixed(2)}`, "aria-label": said,
    onmouseenter: (event) => showTip(said, event.currentTarget), onmouseleave: () => showTip(""),
    onfocus: (event) => showTip(said, event.currentTarget), onblur: () => showTip(""),
  }, percent(row.explained));
}
