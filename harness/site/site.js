// What a page of the site does by itself: a filter for long lists.
for (const table of document.querySelectorAll("table.long")) {
  const field = document.createElement("input");
  field.type = "search"; field.placeholder = "Filter (press /)"; field.setAttribute("aria-label", "Filter");
  field.oninput = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
  };
  table.closest(".scroll").before(field);
}
addEventListener("keydown", event => {
  const field = document.querySelector("input[type=search]");
  if (event.key === "/" && field && document.activeElement !== field) { event.preventDefault(); field.focus(); }
});
