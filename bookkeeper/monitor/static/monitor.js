// Keeps an open page up to date: what changes is fetched from the same address, plots from /api/history.
"use strict";

const intervalMs = Number(document.body.dataset.intervalMs);
const live = document.getElementById("live");
const told = document.getElementById("told");
const colours = ["#0b57a4", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be185d", "#4b5563"];

function tell(text) {
  if (told.textContent !== text) told.textContent = text;
}

async function fetched(address) {
  const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (answer.status === 401) location.reload();  // its page says how to get in
  if (!answer.ok && answer.status !== 503) throw new Error(`${answer.status}`);
  return answer;
}

function show(text) {
  if (text === live.dataset.shown) return;
  const focused = live.contains(document.activeElement) ? document.activeElement : null;
  const label = focused && (focused.id || focused.getAttribute("aria-label"));
  const places = [...live.querySelectorAll(".scroll")].map((region) => region.scrollLeft);
  live.innerHTML = text;
  live.dataset.shown = text;
  live.querySelectorAll(".scroll").forEach((region, place) => { region.scrollLeft = places[place] || 0; });
  if (label) {
    const again = document.getElementById(label) || live.querySelector(`[aria-label="${CSS.escape(label)}"]`);
    if (again) again.focus({ preventScroll: true });
  }
}

function draw(history) {
  const times = history.at_ms.map((ms) => new Date(ms));
  for (const place of document.querySelectorAll("[data-plot]")) {
    const lines = history.series.map((series, index) => ({
      x: times, y: series[place.dataset.plot], name: series.cluster, mode: "lines",
      line: { color: colours[index % colours.length], width: 2 },
    }));
    const layout = {
      margin: { l: 55, r: 10, t: 10, b: 35 }, showlegend: true, legend: { orientation: "h", y: -0.2 },
      yaxis: { rangemode: "tozero", fixedrange: true },
      xaxis: { fixedrange: true, nticks: 4, tickangle: 0, tickformat: "%H:%M:%S" },
      paper_bgcolor: "#fff", plot_bgcolor: "#fff", font: { family: "system-ui, sans-serif" },
    };
    window.Plotly.react(place, lines, layout, { responsive: true, displayModeBar: false });
    place.dataset.points = String(times.length);
  }
}

async function update() {
  try {
    const address = new URL(location.href);
    address.searchParams.set("fragment", "1");
    show(await (await fetched(address)).text());
    if (window.Plotly && document.querySelector("[data-plot]")) draw(await (await fetched("/api/history")).json());
    document.body.dataset.updates = String(Number(document.body.dataset.updates || 0) + 1);
    tell("live");
  } catch (error) {
    tell("this master does not answer; trying again");
  }
}

async function run() {
  if (!document.hidden) await update();
  setTimeout(run, intervalMs);
}

document.addEventListener("DOMContentLoaded", run);
