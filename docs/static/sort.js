// Makes the heads of tables inside an element of the class "sortable" into buttons that sort by their column.
// Without JavaScript, the tables keep their order.
"use strict";

function sortValue(cell) {
  const text = cell.textContent.trim();
  const number = /^[<>]?\s*(-?[\d,]*\.?\d+)/.exec(text);
  return { text, number: number ? parseFloat(number[1].replaceAll(",", "")) : NaN };
}

function compareValues(a, b) {
  const numbers = !Number.isNaN(a.number) && !Number.isNaN(b.number);
  if (numbers && a.number !== b.number) return a.number - b.number;
  return a.text.localeCompare(b.text, "en", { numeric: true });
}

function sortTable(table, column, head) {
  const descending = head.getAttribute("aria-sort") === "ascending";
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => ({ row, value: sortValue(row.cells[column]) }));
  const empty = (entry) => entry.value.text === "";
  rows.sort((a, b) => empty(a) - empty(b) || (descending ? -1 : 1) * compareValues(a.value, b.value));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  body.append(...rows.map((entry) => entry.row));
}

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".sortable table")) {
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sortTable(table, column, head));
      head.replaceChildren(button);
    });
  }
});
