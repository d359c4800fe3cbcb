"use strict";
/* What the model predicts on the sentence, as it is and with heads ablated. */

/* The heads that a list of names and types stands for. */
function headsOf(items) {
  const types = items.filter((item) => ALL_TYPES.includes(item));
  return DATA.rows.filter((row) => items.includes(headName(row.layer, row.head)) || tagsOf(row).some((tag) => types.includes(tag))).map((row) => headName(row.layer, row.head));
}

/* A list of checkboxes of types, and the heads that were ablated one by one. */
function ablationBox(items, toggle, how, setHow) {
  const check = (item, message, kind) => el("label", { class: `ablated ${kind}` }, el("input", { type: "checkbox", value: item, checked: items.includes(item), onchange: () => toggle(item) }), message);
  const types = ALL_TYPES.filter((type) => DATA.rows.some((row) => tagsOf(row).includes(type)));
  const count = (type) => DATA.rows.filter((row) => tagsOf(row).includes(type)).length;
  const single = items.filter((item) => !ALL_TYPES.includes(item));
  const choice = el("select", { id: "how", onchange: (event) => setHow(event.target.value) }, [["mean", "its mean over the sentence"], ["zero", "zero"]].map(([value, text]) => el("option", { value, selected: value === how }, text)));
  return el("div", {},
    el("div", { class: "ablation-list", role: "group", "aria-label": "Ablate all heads with a tag" }, types.map((type) => check(type, [el("span", { class: `chip type-${typeClass(type)}` }, type), `${count(type)}`], "of-type"))),
    single.length ? el("div", { class: "ablation-list", role: "group", "aria-label": "Ablated heads" }, single.map((name) => check(name, name, "of-head"))) : "",
    el("p", { class: "small" }, el("label", { for: "how" }, "Output of an ablated head: "), choice, ". ", types.length ? "Tick a type to ablate all its heads, or choose one head and ablate it." : "Choose a head to ablate it."));
}

/* The loss before and after, the sentence with each token's change, and at one token the likeliest next ones. */
function predictionsView(read, without, at, choose) {
  if (read.loss === undefined) return el("p", { class: "lead" }, read.no_ablation_reason);
  const change = without && without.losses.map((loss, i) => loss - read.losses[i]);
  const message = without ? el("p", { class: "loss", id: "change" }, "Loss ", el("strong", {}, number(read.loss)), " → ", el("strong", {}, number(without.loss)), ` nats per token (${signed(without.loss - read.loss)}) with ${without.heads.length === 1 ? without.heads[0] : `${without.heads.length} heads`} ablated.`)
    : el("p", { class: "loss", id: "change" }, "Loss on this sentence: ", el("strong", {}, number(read.loss)), " nats per token.");
  const control = without?.random?.length ? randomSetsView(read.loss, without) : "";
  const token = (text, i) => {
    const more = change && i > 0 ? change[i - 1] : 0, share = Math.min(1, Math.abs(more) / 3);
    return el("button", {
      type: "button", class: `word${more > 0.005 ? " worse" : more < -0.005 ? " better" : ""}`, style: `--share:${(100 * share).toFixed(0)}%`, "aria-pressed": String(i === at), onclick: () => choose(i),
      title: i === 0 ? "the beginning-of-text token, which is not predicted" : `loss ${number(read.losses[i - 1])}${change ? ` → ${number(without.losses[i - 1])} (${signed(more)})` : ""}`,
    }, visible(text));
  };
  return el("div", {}, message, control, el("div", { class: "words", role: "group", "aria-label": "The sentence's tokens" }, read.tokens.map(token)),
    el("p", { class: "small" }, change ? "Orange: tokens that are predicted worse than before; blue: better. Choose a token to see the likeliest next tokens; bold: the actual next token." : "Choose a token to see the likeliest next tokens; bold: the actual next token."),
    el("div", { class: "beside" }, likeliest(`After “${visible(read.tokens[at]).trim()}”`, read.best[at], read.tokens[at + 1]), without ? likeliest("with ablated heads", without.best[at], read.tokens[at + 1]) : ""));
}

/* The change by these heads beside the changes by random sets of as many other heads. */
function randomSetsView(loss, without) {
  const changes = without.random.map((other) => other - loss), own = without.loss - loss;
  const mean = changes.reduce((sum, change) => sum + change, 0) / changes.length;
  const rank = 1 + changes.filter((change) => Math.abs(change) >= Math.abs(own)).length;
  return el("p", { class: "small", id: "random" }, `${changes.length} random sets of as many other heads, of similar layer and output: ${signed(mean)} on average, from ${signed(Math.min(...changes))} to ${signed(Math.max(...changes))}. Rank of these heads: ${rank} of ${changes.length + 1}.`);
}

function likeliest(caption, best, next) {
  return el("table", { class: "likeliest" }, el("caption", {}, caption), el("tbody", {}, best.map(([word, share]) => el("tr", { class: word === next ? "own" : null },
    el("td", {}, visible(word)), el("td", { class: "number" }, share < 0.001 ? "< 0.001" : number(share, 3)), el("td", {}, el("i", { class: "share-bar", style: `width:${Math.max(1, Math.round(70 * share))}px` }))))));
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
