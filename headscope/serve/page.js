"use strict";
/* Where the scripts draw, and what they draw: the page's own body and the data in it. A notebook's widget has others. */

const PAGE = document.body;
const DATA = JSON.parse(document.getElementById("data").textContent);
