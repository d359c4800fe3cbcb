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
  const counted = ALL_TYPES.filter((type) => !rests(type) && countable(type))
    .map((type) => [type, DATA.rows.filter((row) => tagsOf(row).includes(type))]).filter(([, own]) => own.length).sort((a, b) => b[1].length - a[1].length);
  const acting = DATA.rows.filter((row) => tagsOf(row).some((type) => !rests(type)));
  const said = counted.map(([type, own]) =>
    el("span", {}, `${own.length} `, el("a", { href: `#type=${encodeURIComponent(type)}` }, type), ` (${layersOf(own)}; strongest `, headLink(DATA.rows[strongestOf(type)[0][0]]), ")"));
  const count = (test) => DATA.rows.filter(test).length;
  const others = [[count((row) => rests(row.primary)), "only look at an attention sink (a resting place such as the first token)"], [count((row) => row.primary === UNDECIDED), "not identifiable (this text cannot tell what they do from a simple rule)"], [count((row) => row.primary === UNCLASSIFIED), "unclassified (no tag)"]]
    .filter(([heads]) => heads).map(([heads, what]) => `${heads} ${what}`);
  const first = DATA.rows.map((row) => row.first_token_mass).filter(Number.isFinite);
  const mean = first.reduce((sum, share) => sum + share, 0) / first.length;
  return el("div", { class: "findings" },
    el("p", {},
      `${acting.length} of ${plural(DATA.rows.length, "head")} have a tag for where they look`, said.length ? [": ", listed(said)] : "", ". ",
      others.length ? ["The others: ", listed(others), ". "] : "",
      first.length ? `On average ${Math.round(100 * mean)} % of a head's attention lies on the first token.` : ""),
    counted.length ? clearest(counted.map(([type]) => strongestOf(type)[0])) : "");
}

/* The head of the largest lift in a sentence, with what a tag had to pass where the words first stand. */
function clearest(heads) {
  const [place, relation] = heads.reduce((best, next) => (next[1].lift[next[0]] > best[1].lift[best[0]] ? next : best));
  const twin = DATA.info.settings && DATA.info.settings.twin;
  return el("p", {}, "The clearest is ", headLink(DATA.rows[place]), `: ${number(relation.mass[place])} of its attention (the mass) is on ${relation.meaning}${relation.spoken === relation.meaning ? "" : ` (${relation.spoken})`}, and ${strictestControl(relation, place)}. The lift is mass − control. `,
    "A tag asks that the 95 % interval of the lift lies above 0", twin ? ", that the lift exceeds those of a null model (the twin: the same model with its attention weights shuffled)" : "",
    ", and, for words, that the head is right at contested queries, where the best simple rule such as “the nearest verb” is wrong.");
}

function runFacts() {
  const { model, info } = DATA, read = info.text_read || {}, settings = info.settings || {};
  const whole = (value) => value.toLocaleString("en");
  const pairs = [
    ["model", [model.architecture, model.parameters && `${whole(model.parameters)} parameters`].filter(Boolean).join(", ")],
    ["text", [(info.corpora && info.corpora.asked || []).join(", "), Number.isFinite(read.tokens) && `${whole(read.tokens)}${read.tokens < read.of ? ` of ${whole(read.of)}` : ""} tokens`].filter(Boolean).join(", ")],
    ["relations", whole(DATA.relations.length)],
    ["chance", settings.twin ? "compared with a null model (shuffled weights)" : settings.twin === false ? "no null model was read" : ""],
    ["engine", info.engine],
    ["not the default", DATA.not_default],
  ].filter(([, value]) => value);
  return el("dl", { class: "facts" }, pairs.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))));
}
