// What a page of the site does by itself: a filter for long lists, and a front page that looks again while a run goes on.
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

const now = document.getElementById("now");
if (now) {
  const silent = (Date.now() - Date.parse(now.dataset.at)) / 1000;
  if (silent > 60) now.querySelector("h2").append(` (not heard of for ${Math.round(silent / 60)} min: it may have died)`);
  setInterval(() => { if (!document.querySelector("input[type=search]:focus")) location.reload(); }, 5000);
}
