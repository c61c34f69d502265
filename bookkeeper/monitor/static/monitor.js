// Updates an open page: fetches its changing part from the same address, and the plots from /api/history.
"use strict";

const intervalMs = Number(document.body.dataset.intervalMs);
const live = document.getElementById("live");
const statusLine = document.getElementById("status-line");
const colours = ["#0b57a4", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be185d", "#4b5563"];

function setStatus(text) {
  if (statusLine.textContent !== text) statusLine.textContent = text;
}

async function fetchAnswer(address) {
  const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (answer.status === 401) location.reload();  // its page has a form for the token
  if (!answer.ok && answer.status !== 404 && answer.status !== 503) throw new Error(`${answer.status}`);
  return answer;
}

function show(text) {
  if (text === live.dataset.shown) return;
  const focused = live.contains(document.activeElement) ? document.activeElement : null;
  const label = focused && (focused.id || focused.getAttribute("aria-label"));
  const scrolled = [...live.querySelectorAll(".scroll")].map((region) => region.scrollLeft);
  live.innerHTML = text;
  live.dataset.shown = text;
  live.querySelectorAll(".scroll").forEach((region, index) => { region.scrollLeft = scrolled[index] || 0; });
  if (label) {
    const again = document.getElementById(label) || live.querySelector(`[aria-label="${CSS.escape(label)}"]`);
    if (again) again.focus({ preventScroll: true });
  }
}

function draw(history) {
  const times = history.at_ms.map((ms) => new Date(ms));
  for (const plot of document.querySelectorAll("[data-plot]")) {
    const lines = history.series.map((series, index) => ({
      x: times, y: series[plot.dataset.plot], name: series.cluster, mode: "lines",
      line: { color: colours[index % colours.length], width: 2 },
    }));
    const layout = {
      margin: { l: 55, r: 10, t: 10, b: 35 }, showlegend: true, legend: { orientation: "h", y: -0.2 },
      yaxis: { rangemode: "tozero", fixedrange: true },
      xaxis: { fixedrange: true, nticks: 4, tickangle: 0, tickformat: "%H:%M:%S" },
      paper_bgcolor: "#fff", plot_bgcolor: "#fff", font: { family: "system-ui, sans-serif" },
    };
    window.Plotly.react(plot, lines, layout, { responsive: true, displayModeBar: false });
    plot.dataset.points = String(times.length);
  }
}

async function update() {
  try {
    const address = new URL(location.href);
    address.searchParams.set("fragment", "1");
    show(await (await fetchAnswer(address)).text());
    if (window.Plotly && document.querySelector("[data-plot]")) draw(await (await fetchAnswer("/api/history")).json());
    document.body.dataset.updates = String(Number(document.body.dataset.updates || 0) + 1);
    setStatus("live");
  } catch (error) {
    setStatus("this master does not answer; trying again");
  }
}

async function run() {
  if (!document.hidden) await update();
  setTimeout(run, intervalMs);
}

document.addEventListener("DOMContentLoaded", run);
