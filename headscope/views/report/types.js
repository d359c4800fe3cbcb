/* A page per type, and where the run comes from. */

const FIRST = 25;

/* A head's picture beside its name; it says nothing that the name's link does not. */
const thumbLink = (row) => {
  const picture = thumb(row);
  return el("span", { class: `mini type-${typeClass(row.primary)}`, title: picture && pictureOf(row) }, picture);
};

/* Targets and control keys of a type. */
function question(type) {
  const own = DATA.types.find((t) => t.name === type) || {};
  return own.looks_at ? el("p", { class: "lead" }, `Heads that attend to: ${own.looks_at}.`, own.control_keys ? ` Control keys: ${own.control_keys}.` : "") : null;
}

function typePage(type) {
  const relations = DATA.relations.filter((r) => r.type === type);
  const strongest = strongestOf(type), common = commonCautions(strongest);
  const first = stateOf("all") ? strongest.length : Math.min(FIRST, strongest.length);
  const more = first < strongest.length ? el("p", {}, `The first ${first} of ${counted(strongest.length)}. `, el("a", { href: `#type=${encodeURIComponent(type)}?all=1` }, `Show all ${counted(strongest.length)}`)) : null;
  return el("section", {},
    el("h2", {}, chip(type), countable(type) ? ` ${counted(strongest.length)} of ${plural(DATA.rows.length, "head")}` : ""), question(type), columnsInWords(), cautionLines(strongest.length, common),
    strongest.length ? table("Strongest heads", ["head", "relation", "mass", "control", "lift", "95\u00a0%", "q", "n", "hit rate, baseline"],
      strongest.slice(0, first).map(([i, r]) => [el("span", { class: "value" }, thumbLink(DATA.rows[i]), headLink(DATA.rows[i])), [r.label, " ", el("span", { class: "code" }, r.name), exceptionsOf(r, i, common)], number(r.mass[i]), number(r.control[i]), number(r.lift[i]), el("span", { class: "value" }, interval(r.ci_low[i], r.ci_high[i])), small(r.q_value[i]), String(r.n), hitsOf(r, i)]), [2, 3, 4, 6, 7, 8])
      : el("p", {}, countable(type) ? "No head has this tag." : "This text has too few queries to give any head this tag."),
    more, relationTable(relations), distributions(relations));
}

/* What most of a type's tags have in common, said once above their table. */
const cautionLines = (tags, common) => Object.entries(common).map(([column, count]) =>
  el("p", { class: "caution" }, `${counted(count)} of ${plural(tags, "tag")}: ${DATA.cautions[column].join(": ")}.${count < tags ? ` The others: “not ${DATA.cautions[column][0]}”.` : ""}`));

function relationTable(relations) {
  const anyBaseline = relations.some((r) => r.baseline_rate !== null);
  const columns = ["relation", "n", "best head", "mass", "control", "lift", ...(anyBaseline ? ["hit rate", "baseline"] : []), "heads tagged", "replicates"];
  const rows = [...relations].sort((a, b) => (b.n >= 50) - (a.n >= 50) || b.lift[DATA.best[b.id]] - a.lift[DATA.best[a.id]]).map((r) => {
    const best = DATA.best[r.id];
    return [[...relationName(r), r.n < 50 ? " (too few)" : r.taggable ? "" : " (reported only)"], String(r.n), headLink(DATA.rows[best]), number(r.mass[best]), number(r.control[best]), number(r.lift[best]),
      ...(anyBaseline ? [number(r.hit_rate[best]), number(r.baseline_rate)] : []), r.n < 50 || !r.taggable ? "" : String(r.tagged.reduce((a, b) => a + b, 0)), number(r.replicates[best])];
  });
  return table("Relations with their best head", columns, rows, columns.map((_, i) => i).filter((i) => i !== 0 && i !== 2));
}

/* The lift of every head, relation by relation, on one scale. */
function distributions(relations) {
  const box = el("div", { class: "strips" }, el("h3", {}, "All heads"));
  for (const r of relations.filter((x) => x.n >= 50)) {
    const root = svg("svg", { viewBox: "0 0 600 24", role: "img", "aria-label": `lift of all heads for ${r.name}, from ${number(Math.min(...r.lift))} to ${number(Math.max(...r.lift))}` });
    const at = (v) => 60 + Math.max(-0.1, Math.min(1, v)) * 530;
    root.append(svg("line", { x1: at(0), x2: at(0), y1: 0, y2: 24, class: "grid-line" }));
    r.lift.forEach((v, i) => root.append(svg("line", { x1: at(v), x2: at(v), y1: 4, y2: 20, class: `strip type-${typeClass(r.type)}${r.tagged[i] ? " tagged" : ""}` })));
    box.append(el("div", { class: "strip-row" }, el("span", { class: "name" }, r.label, " ", el("span", { class: "code" }, r.name)), root));
  }
  box.append(el("p", { class: "small" }, "Each line is a head, at its lift from −0.1 to 1. Bold: heads with the tag. Grey: 0."));
  return savable(box, `${DATA.model.name} lifts of all heads`);
}

function aboutPage() {
  const info = DATA.info;
  const flat = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));
  const list = (title, object) => table(title, ["", ""], Object.entries(object || {}).filter(([, v]) => v !== undefined && v !== null).map(([k, v]) => [k, flat(v)]), [], true);
  const notes = [...(info.notes || [])];
  if (info.settings && info.settings.null_model) notes.push("This is the null model: attention weights are shuffled, so that every tag is false.");
  return el("section", {},
    el("h2", {}, "How this was measured"),
    lossLine(), notes.length ? el("ul", { class: "notes" }, notes.map((note) => el("li", {}, note))) : null,
    info.command ? el("p", {}, "To repeat it: ", el("code", {}, info.command)) : null,
    list("Model", info.model), list("Settings", { types: (info.types || []).join(", "), bos: info.bos, engine: info.engine, ...info.settings }),
    info.text_read ? list("Text read", { tokens: info.text_read.tokens, of: info.text_read.of, "interim analyses": info.text_read.looks, "expected changes of tags by the rest": info.text_read.expected_changes }) : null,
    info.precision ? list("Precision, chosen by the run (differences of masses on the text's beginning)", info.precision) : null,
    info.corpora ? list("Corpora (sha256)", info.corpora.files) : null,
    list("Thresholds", info.thresholds), list("Versions and times", { ...info.provenance.versions, time: info.provenance.time, seconds: info.provenance.seconds, tokens: info.provenance.tokens }),
    el("p", { class: "small" }, "A tag describes attention. It does not show a head's output or that the model needs it."));
}
