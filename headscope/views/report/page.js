/* The data of the page: text that was deflated and written in base64. */

async function textOf(packed) {
  return new Response(new Blob([bytesOf(packed)]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

const PAGE = document.body;
const DATA = JSON.parse(await textOf(document.getElementById("data").textContent));
