"use strict";
/* Where the scripts draw, and what they draw: a page's own body and the data that lie in it. A notebook's widget has others. */

const PAGE = document.body;
const DATA = JSON.parse(document.getElementById("data").textContent);
DATA.relations = JSON.parse(textOf(document.getElementById("relations").textContent));
