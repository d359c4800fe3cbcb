/* A head's page: its tags with reasons, a bar per relation, its shape, and its examples. */

function headPage(row) {
  const name = headName(row.layer, row.head);
  const index = placeOf(row.layer, row.head);
  const tagged = DATA.relations.filter((r) => r.tagged[index]);
  const page = el("article", { class: "head" },
    el("h2", {}, `${name} `, tagsOf(row).length ? tagsOf(row).map(chip) : chip(row.mark)),
    neighbours(row),
    row.undecided ? el("p", {}, el("strong", {}, `Cannot be told apart here: ${row.undecided.said}. `), `They differ at ${row.undecided.few} queries of this text, and a verdict asks for ${DATA.info.thresholds.min_queries}.`) : "",
    el("p", { class: "reason" }, row.reason),
    row.causes.length ? el("ul", { class: "causes" }, row.causes.map((line) => el("li", {}, line))) : "",
    facts(row));
  page.append(el("h3", {}, "Relations"), bars(index));
  const examples = DATA.examples.filter((e) => e.layer === row.layer && e.head === row.head);
  if (tagged.length) page.append(el("h3", {}, "Examples"), examplesOf(examples));
  return page;
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

/* The relations with the largest lift, and every tagged one: mass beside control, interval, twin. */
function bars(index) {
  const order = DATA.relations.filter((r) => r.n >= 50 && r.taggable && r.mass[index] !== null)
    .sort((a, b) => b.tagged[index] - a.tagged[index] || b.undecided.includes(index) - a.undecided.includes(index) || b.lift[index] - a.lift[index]).slice(0, 12);
  const box = el("div", { class: "bars" });
  for (const r of order) {
    const value = (column) => r[column][index];
    const say = `${r.id}: mass ${number(value("mass"))}, control ${number(value("control"))}, lift ${number(value("lift"))} ` +
      `[${number(value("ci_low"))}, ${number(value("ci_high"))}], q ${small(value("q_value"))}, n ${r.n}` +
      (value("hit_rate") === null ? "" : `, hit rate ${number(value("hit_rate"))}`) +
      (r.rule === null ? "" : ` (best simple rule ${number(r.rule)})`) +
      (value("twin_p999") === null ? "" : `, twin ${number(value("twin_p999"))}`) +
      (r.undecided.includes(index) ? `; or ${r.baseline} (they differ at ${r.contested} queries)` : "");
    const width = (x) => `${Math.max(0, Math.min(1, x || 0)) * 100}%`;
    const base = value("control") || 0;
    const track = el("div", { class: "track", role: "img", "aria-label": say },
      el("div", { class: `bar type-${typeClass(r.type)}`, style: `width:${width(value("mass"))}` }),
      el("div", { class: "control", style: `left:${width(base)}` }),
      value("ci_low") === null ? null : el("div", { class: "interval", style: `left:${width(base + value("ci_low"))};right:calc(100% - ${width(base + value("ci_high"))})` }),
      value("twin_p999") === null ? null : el("div", { class: "twin", style: `left:${width(base + value("twin_p999"))}` }));
    box.append(el("div", { class: `relation${r.tagged[index] ? " tagged" : r.undecided.includes(index) ? " untold" : ""}` },
      el("a", { class: "name", href: `#type=${encodeURIComponent(r.type)}` }, r.id, r.undecided.includes(index) ? " ?" : ""), track, el("span", { class: "value" }, `${number(value("mass"))} (${number(base)})`),
      el("span", { class: "small" }, say.split(": ")[1])));
  }
  box.append(el("p", { class: "small" }, "Bar: mass. Black line: control. Bracket: interval of control + lift. Dashed: control + what the shuffled twin shows by chance. Relations with at least 50 queries, the tagged ones first, then those (?) that this text cannot tell from a simple rule."));
  return box;
}

function examplesOf(examples) {
  if (!examples.length) return el("p", {}, "This run kept no examples.");
  const groups = new Map();
  for (const example of examples) {
    if (!groups.has(example.relation)) groups.set(example.relation, []);
    groups.get(example.relation).push(example);
  }
  const box = el("div", { class: "examples" });
  let first = true;
  for (const [relation, members] of groups) {
    const about = DATA.relations.find((r) => r.id === relation);
    box.append(el("h4", {}, relation || "ordinary text"));
    if (about) box.append(el("p", { class: "small" }, `The boxed token should look at ${about.meaning} (underlined). Stretches of the text that it has little to do with are left out (…). Best queries first, then one from each quarter of all queries, the highest first.`));
    members.forEach((example, i) => box.append(exampleView(example, relation !== "" && first && i === 0)));
    first = false;
  }
  return box;
}
