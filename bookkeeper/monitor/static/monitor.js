// Updates an open page: fetches its changing part from the same address.
"use strict";

const intervalMs = Number(document.body.dataset.intervalMs);
const live = document.getElementById("live");
const statusLine = document.getElementById("status-line");

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
  live.innerHTML = text;
  live.dataset.shown = text;
  if (label) {
    const again = document.getElementById(label) || live.querySelector(`[aria-label="${CSS.escape(label)}"]`);
    if (again) again.focus({ preventScroll: true });
  }
}

async function update() {
  try {
    const address = new URL(location.href);
    address.searchParams.set("fragment", "1");
    show(await (await fetchAnswer(address)).text());
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
