/* Search and sort; what is asked stands in the address. */
const $ = (id) => document.getElementById(id);
const cards = [...document.querySelectorAll(".card")].map((card) => {
  const shares = Object.fromEntries(card.dataset.shares.split(";").filter(Boolean).map((each) => [each.slice(0, each.lastIndexOf("=")), Number(each.slice(each.lastIndexOf("=") + 1))]));
  return { card, row: document.querySelector(`tr[data-place="${card.dataset.place}"]`), place: Number(card.dataset.place), name: card.dataset.name, heads: Number(card.dataset.heads), shares, words: card.querySelector(".card-text").textContent.toLowerCase() };
});

const ORDERS = { "": (a, b) => a.place - b.place, name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }), heads: (a, b) => b.heads - a.heads };

function arrange() {
  const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean), by = $("sort").value;
  const order = Object.hasOwn(ORDERS, by) ? ORDERS[by] : (a, b) => (b.shares[by] || 0) - (a.shares[by] || 0);
  for (const each of [...cards].sort((a, b) => order(a, b) || a.place - b.place)) {
    each.card.hidden = each.row.hidden = !words.every((word) => each.words.includes(word));
    $("cards").append(each.card);
    $("table").tBodies[0].append(each.row);
  }
  $("count").textContent = `${cards.filter((each) => !each.card.hidden).length} of ${cards.length} shown`;
}

function keep() {
  const state = new URLSearchParams([["find", $("find").value.trim()], ["sort", $("sort").value]].filter(([, value]) => value));
  history.replaceState(null, "", state.size ? `#?${state}` : location.pathname + location.search);
  arrange();
}

function read() {
  const state = new URLSearchParams(location.hash.replace(/^#\??/, ""));
  $("find").value = state.get("find") || "";
  $("sort").value = [...$("sort").options].some((own) => own.value === state.get("sort")) ? state.get("sort") : "";
  arrange();
}

$("tools").hidden = false;
$("tools").addEventListener("submit", (event) => event.preventDefault());
$("find").addEventListener("input", keep);
$("sort").addEventListener("change", keep);
window.addEventListener("hashchange", read);
read();
