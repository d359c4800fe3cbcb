/* A head's page: where it attends in a sentence, three examples, all its queries, and its relations with their conditions. */

function headPage(row) {
  const name = headName(row.layer, row.head), index = placeOf(row.layer, row.head), examples = examplesOfHead(row);
  return el("article", { class: "head" },
    el("div", { class: "head-top" }, largeThumb(row), el("div", {},
      el("h2", {}, `${name} `, tagsOf(row).length ? tagsOf(row).map((tag) => chip(tag, markedTag(row, tag))) : chip(row.primary)),
      neighbours(row), plainSentence(row, index),
      row.undecided ? el("p", {}, el("strong", {}, `Not identifiable: ${row.undecided.description}`), `: ${row.undecided.why}.`) : "",
      row.deeds.length ? el("ul", { class: "deeds" }, row.deeds.map((line) => el("li", {}, line))) : "",
      row.causes.length ? el("details", { open: "" }, el("summary", {}, "Effects of ablating it"), el("ul", { class: "causes small" }, row.causes.map((line) => el("li", {}, line)))) : "")),
    examplesOf(row, examples),
    el("h3", {}, "Relations"), bars(index),
    el("h3", {}, "Pattern"), facts(row), ordinaryOf(row, examples));
}

function largeThumb(row) {
  const picture = thumb(row);
  return picture && el("figure", { class: "thumb-figure" }, savable(el("div", { class: `large-thumb type-${typeClass(row.primary)}`, role: "img", "aria-label": pictureOf(row) }, picture, sinkBar(row)), `${headName(row.layer, row.head)} mean attention`),
    el("figcaption", { class: "small" }, `${pictureOf(row)[0].toUpperCase()}${pictureOf(row).slice(1)}`));
}

/* The relation that a head is strongest by, of its primary type if it has one. */
const relationOf = (row) => DATA.relations.find((own) => own.name === row.relation && (own.type === row.primary || !tagsOf(row).length));

/* The attention on control keys, after that on the matched control if it is larger, because the larger one decides a tag. */
function controls(r, index) {
  const control = `${number(r.control[index])} on control keys`;
  const isLarger = r.matched_control[index] !== null && r.matched_control[index] > r.control[index];
  return isLarger ? `${number(r.matched_control[index])} on ${r.matched_control_keys} (matched), ${control}` : control;
}

/* A relation's mass, its controls, and the lift over control keys with its 95 % interval. */
function attentionOn(r, index) {
  const lift = r.ci_low[index] === null ? "" : `; lift over control keys ${number(r.lift[index])} [${number(r.ci_low[index])}, ${number(r.ci_high[index])}], ${counted(r.n)} queries`;
  const hits = hasBaseline(r, index) ? `; hit rate ${number(r.hit_rate[index])}, baseline ${number(r.baseline_rate)}` : "";
  return `${r.input}${number(r.mass[index])} of its attention is on ${r.meaning}${r.label === r.meaning ? "" : ` (${r.label})`}, ${controls(r, index)}${lift}${hits}${cautionsOf(r, index)}`;
}

/* Where the head attends, in a sentence. */
function plainSentence(row, index) {
  const r = relationOf(row);
  if (!r || r.mass[index] === null) return "";
  const sentence = `${attentionOn(r, index)}.`;
  return el("p", { class: "plain" }, tagsOf(row).length ? sentence[0].toUpperCase() + sentence.slice(1) : `No tag; the closest relation: ${sentence}`);
}

function neighbours(row) {
  const at = placeOf(row.layer, row.head);
  const link = (other, text) => (other ? headLink(other, text(other)) : "");
  return el("p", { class: "neighbours" },
    link(DATA.rows[at - 1], (r) => `← ${headName(r.layer, r.head)}`), " ", el("a", { href: "#" }, "atlas"), " ",
    link(DATA.rows[at + 1], (r) => `${headName(r.layer, r.head)} →`));
}

function facts(row) {
  const pairs = [
    ["shape", row.shape], ["first-token mass", number(row.first_token_mass)], ...(Number.isFinite(row.sink_share) ? [["learned sink's share", number(row.sink_share)]] : []), ["entropy", `${number(row.entropy)} nats`],
    ["mean distance", `${number(row.mean_distance, 1)} tokens`], ["variability", number(row.variability, 3)],
  ];
  if (DATA.model.key_value_heads && DATA.model.key_value_heads !== DATA.heads) pairs.push(["key/value group", String(row.kv_group)]);
  return el("dl", { class: "facts" }, pairs.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))));
}

/* A relation in words, its code in grey, and where the run has one an example of it. */
function relationName(r) {
  return [r.label, r.instance ? el("span", { class: "instance" }, " ", el("em", {}, visible(r.instance[0]).trim()), " → ", el("em", {}, visible(r.instance[1]).trim())) : "", " ", el("span", { class: "code" }, r.id)];
}

/* The relations with the largest lift, and every tagged one: mass beside control and interval. */
function bars(index) {
  const primary = relationOf(DATA.rows[index]), order = DATA.relations.filter((r) => r.n >= 50 && r.taggable && r.mass[index] !== null)
    .sort((a, b) => b.tagged[index] - a.tagged[index] || (b === primary) - (a === primary) || b.undecided.includes(index) - a.undecided.includes(index) || b.lift[index] - a.lift[index]).slice(0, 12);
  const box = el("div", { class: "bars" });
  for (const r of order) {
    const value = (column) => r[column][index];
    const matched = value("matched_control");
    const message = `${r.id}: mass ${number(value("mass"))}, control ${number(value("control"))}, ${matched === null ? "" : `matched ${number(matched)}, `}lift ${number(value("lift"))} ` +
      `[${number(value("ci_low"))}, ${number(value("ci_high"))}], q ${small(value("q_value"))}, n ${counted(r.n)}` +
      (value("hit_rate") === null ? "" : `, hit rate ${number(value("hit_rate"))}`) +
      (r.baseline_rate === null ? "" : ` (baseline ${number(r.baseline_rate)})`) +
      (r.undecided.includes(index) ? (r.baseline ? `; or the baseline ${r.baseline} (the two differ at ${counted(r.hard)} queries)` : "; or chance (too few documents)") : "");
    const width = (x) => `${Math.max(0, Math.min(1, x || 0)) * 100}%`;
    const base = value("control") || 0;
    const track = el("div", { class: "track", role: "img", "aria-label": message },
      el("div", { class: `bar type-${typeClass(r.type)}`, style: `width:${width(value("mass"))}` }),
      el("div", { class: "control", style: `left:${width(base)}` }),
      matched === null ? null : el("div", { class: "matched", style: `left:${width(matched)}` }),
      value("ci_low") === null ? null : el("div", { class: "interval", style: `left:${width(base + value("ci_low"))};right:calc(100% - ${width(base + value("ci_high"))})` }));
    box.append(el("div", { class: `relation${r.tagged[index] ? " tagged" : r.undecided.includes(index) ? " undecided" : ""}` },
      el("a", { class: "name", href: `#type=${encodeURIComponent(r.type)}` }, relationName(r), cautionsOf(r, index), r.undecided.includes(index) ? " ?" : ""), track, el("span", { class: "value" }, `${number(value("mass"))} (${number(base)})`),
      conditions(r, index, message.split(": ")[1])));
  }
  const anyMatched = order.some((r) => r.matched_control[index] !== null);
  box.append(barsLegend(typeClass(order.length ? order[0].type : ""), anyMatched), el("p", { class: "small" }, "Only relations with at least 50 queries: first those that give a tag, then those (?) that this text does not separate from a baseline."), columnsInWords());
  return box;
}

/* What a bar and the marks on it show. */
function barsLegend(colour, anyMatched) {
  const sign = (name) => el("span", { class: "track", "aria-hidden": "true" }, el("span", { class: name === "bar" ? `bar type-${colour}` : name, style: name === "bar" ? "width:100%" : name === "interval" ? "left:15%;right:15%" : "left:50%" }));
  const signs = [["bar", "mass"], ["control", "control"], ...(anyMatched ? [["matched", "matched control"]] : []), ["interval", "control + 95\u00a0% interval of the lift"]];
  return el("p", { class: "small bars-legend" }, signs.flatMap(([name, meaning]) => [el("span", { class: "value" }, sign(name), " ", meaning), " "]));
}

/* Definitions of the columns and numbers. */
function columnsInWords() {
  const message = [
    ["mass", "mean share of a query's attention on the targets of the relation, 0 to 1"],
    ["control", "the same for control keys, such as other words of the target's class at nearby distances"],
    ["matched control", "attention that other words put on words of that class at that distance"],
    ["lift, 95 %", "mass − control, with its 95 % interval (bootstrap over documents)"],
    ["q", "one-sided test of a lift above 0, Benjamini–Hochberg over all heads and relations"],
    ["n", "number of queries"],
    ["hit rate", "share of queries whose largest attention is on a target; sinks are excluded"],
    ["baseline", "the best of simple heuristics such as the nearest verb or a fixed distance, with its hit rate"],
    ["tag", "needs a mass of 1.5 times every control and, for words, a preference for the target at hard queries, where the best baseline is wrong; and a probability of 0.5 or more on another text"],
    ...Object.values(DATA.cautions),
    ["replicates", "probability of the tag on another text of this size"],
  ];
  return el("details", { class: "columns" }, el("summary", {}, "What the numbers mean"), el("dl", {}, message.flatMap(([name, meaning]) => [el("dt", {}, name), el("dd", {}, meaning)])));
}

/* The numbers of a relation in a line, and behind it each condition of its tag. */
function conditions(r, index, numbers) {
  const steps = (DATA.ladders.find((own) => own.relation === r.id && placeOf(own.layer, own.head) === index) || {}).steps;
  if (!steps) return el("span", { class: "small" }, numbers);
  const failed = steps.filter(([, , holds]) => !holds).map(([name]) => name);
  return el("details", { class: "small" }, el("summary", {}, `${numbers}; ${steps.length - failed.length} of ${steps.length} conditions hold${failed.length ? `, not: ${failed.join(", ")}` : ""}`),
    el("ol", { class: "ladder" }, steps.map(([name, message, holds]) => el("li", { class: holds ? "holds" : "fails" }, el("span", { class: "mark" }, holds ? "✓" : "✗"), " ", el("span", { class: "step" }, name), ` ${message}`))));
}
