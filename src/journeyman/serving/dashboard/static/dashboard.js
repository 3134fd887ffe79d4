// What a page does beyond links and forms: keys, light and dark, and a tick while somebody looks. Everything works without it.
"use strict";

const root = document.documentElement;
const kept = { get: (name) => { try { return localStorage.getItem(name); } catch { return null; } }, set: (name, to) => { try { localStorage.setItem(name, to); } catch { /* private window */ } } };
// Before the first paint, or a dark page would flash white, and columns would jump.
if (kept.get("theme")) root.dataset.theme = kept.get("theme");
root.dataset.hide = kept.get("hide") ?? "";
root.classList.add("scripted");

const $ = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];

function flip() {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  kept.set("theme", root.dataset.theme);
}

// -- keys

const stops = () => all("#rows a.open, main .reader .talk > .step");
const here = () => document.activeElement?.closest(".row, .talk > .step");

function move(by) {
  const found = stops();
  if (!found.length) return;
  const now = here();
  const at = now ? found.findIndex((each) => now.contains(each)) : -1;
  const next = at < 0 ? firstInSight(found, by) : found[Math.min(Math.max(at + by, 0), found.length - 1)];
  next.focus({ preventScroll: true });
  next.closest(".row, .step").scrollIntoView({ block: next.closest(".row") ? "nearest" : "start" });
  if ($("#peek")?.hidden === false) peek();
}

// A row's trace beside the list, which stays as it is. Asked for again it is gone.
let peeked = "";
async function peek() {
  const drawer = $("#peek"), link = here()?.matches(".row") && $("a.open", here());
  if (!drawer || !link) return;
  if (!drawer.hidden && peeked === link.href) { unpeek(); return; }
  peeked = link.href;
  try {
    const answer = await fetch(link.href, { headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (peeked !== link.href) return;
    const title = document.createElement("h2"), way = link.cloneNode(true);
    way.removeAttribute("id");
    title.append(way);
    drawer.replaceChildren(title, ...all(".talk", page));
    drawer.hidden = false;
    drawer.scrollTop = 0;
  } catch { away(true); }
}

function unpeek() {
  const open = $("#peek")?.hidden === false;
  if (open) { $("#peek").hidden = true; peeked = ""; }
  return open;
}

function firstInSight(found, by) {
  const seen = found.find((each) => each.getBoundingClientRect().top >= 0);
  return by > 0 ? seen ?? found[0] : seen ?? found.at(-1);
}

const say = (value) => (here()?.querySelector("form.label") ?? $(".title form.label"))?.querySelector(`button.${value}`)?.click();

function unfold() {
  const folded = all(".talk details");
  const open = folded.some((each) => !each.open);
  folded.forEach((each) => { each.open = open; });
}

function toggle() {
  const fold = here()?.matches(".step") && document.activeElement === here() && $("details", here());
  if (fold) fold.open = !fold.open;
  return Boolean(fold);
}

// In a trace: unfold what may be said, and go to a field of it.
function write(selector) {
  const fold = $("#say"), field = fold && $(selector, fold);
  if (!field) return;
  fold.open = true;
  // What was answered is there to be mended, where all of it stands on the page.
  if (field.id === "say-answer" && !field.value) field.value = field.dataset.answered;
  field.focus();
  field.scrollIntoView({ block: "center" });
}

const KEYS = {
  j: () => move(1), k: () => move(-1), g: () => say("good"), b: () => say("bad"), e: unfold,
  a: () => say("auto"), c: () => write("#say-answer"), n: () => write("#say-note"), s: () => write(".score"),
  p: () => ((here() && $(".again", here())) ?? all(".talk .again").at(-1))?.click(),
  u: () => $("#undo")?.click(), "[": () => $("#older")?.click(), "]": () => $("#newer")?.click(),
  "/": () => { const field = $(".search"); if (field) { field.focus(); field.select(); } else location.href = "/traces"; },
  t: () => { kept.set("times", kept.get("times") === "local" ? "utc" : "local"); tellTimes(); },
  "?": () => $("#help").showModal(), " ": peek, Escape: () => unpeek() || $("#back")?.click(),
};
// Who speaks to the machine, or strikes keys by accident, can have those of a single letter or sign do nothing (WCAG 2.1.4).
const isOn = (key) => key.length > 1 || kept.get("keys") !== "off";

// -- times: as the server says them, in UTC, or as the clock of whoever looks has them

const inUtc = new WeakMap();
function tellTimes() {
  const local = kept.get("times") === "local", today = onClock(new Date()).slice(0, 10);
  const told = (each, words) => { if (!inUtc.has(each)) inUtc.set(each, each.textContent); each.textContent = local ? words : inUtc.get(each); };
  for (const each of all("time[datetime]")) {
    const [day, hour] = onClock(new Date(each.dateTime)).split(" ");
    told(each, day === today ? hour : `${day} ${hour.slice(0, 5)}`);
  }
  all(".zone").forEach((each) => told(each, "local"));
}
const two = (n) => String(n).padStart(2, "0");
const onClock = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":")}`;

// -- commands and ids can be taken along

function copyable() {
  // A browser gives no clipboard to pages that came over plain HTTP from elsewhere.
  if (!navigator.clipboard) return;
  for (const each of all(".note code, .empty code, .facts dd.id")) {
    const text = each.textContent.trim();
    if ($(".copy", each) || each.nextElementSibling?.matches(".copy") || text.endsWith("…") || (each.matches("code") && !/^(journeyman |[A-Z_]+=)/.test(text))) continue;
    const button = document.createElement("button"), copy = `Copy ${text}`, say = (words) => { button.title = button.ariaLabel = words; };
    button.type = "button";
    button.className = "quiet copy";
    say(copy);
    button.onclick = async () => { await navigator.clipboard.writeText(text); say("Copied"); setTimeout(say, 1500, copy); };
    if (each.matches("dd")) each.append(button); else each.after(button);
  }
}

// -- where to: pages by the letters of their names, and whatever else is typed as a search

function goTo() {
  const field = $("#go-to"), search = $("#go-search");
  const links = () => all("#go a").filter((each) => !each.parentElement.hidden);
  const narrow = () => {
    const typed = field.value.trim();
    for (const each of all("#go a")) each.parentElement.hidden = each !== search && !each.textContent.toLowerCase().includes(typed.toLowerCase());
    search.href = typed ? `/traces?q=${encodeURIComponent(typed)}` : "/traces";
    search.textContent = typed ? `Search for \u201c${typed}\u201d in the traces` : "Search in the traces";
  };
  field.oninput = narrow;
  field.onkeydown = (event) => { if (event.key === "Enter") links()[0].click(); };
  $("#go").onkeydown = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const found = [field, ...links()];
    found[(found.indexOf(document.activeElement) + by + found.length) % found.length].focus();
  };
  field.value = "";
  narrow();
  $("#go").showModal();
}

// -- tables are sorted by a click on a heading: by number where all cells begin with one

function sortable(table) {
  const heads = all("thead th", table), body = table.tBodies[0];
  if (!body || body.rows.length < 2) return;
  heads.forEach((head, at) => {
    if (!head.textContent.trim() || $("a, button", head) || $("input", body.rows[0].cells[at])) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...body.rows].sort((a, b) => compared(a.cells[at], b.cells[at], down ? -1 : 1)));
    };
  });
}

const amount = (text) => {
  const found = /^[^\w\u2212+-]*([+\u2212-]?[\d,]*\.?\d+)\s*(ms|s|min|h|d|[kMG%])?/.exec(text);
  const unit = { ms: 0.001, s: 1, min: 60, h: 3600, d: 86400, k: 1e3, M: 1e6, G: 1e9 };
  return found ? Number(found[1].replaceAll(",", "").replace("\u2212", "-")) * (unit[found[2]] ?? 1) : NaN;
};
const UNKNOWN = /^(unknown|\?|\u2013|-|never|)$/;
// Of today the hour alone is said, and today is later than any other day.
const moment = (text) => (/^\d\d:\d\d/.test(text) ? `9999 ${text}` : text);
function compared(one, other, way) {
  const [a, b] = [one, other].map((cell) => cell?.textContent.trim() ?? "");
  // What is unknown comes last, whichever way.
  const gone = UNKNOWN.test(a) - UNKNOWN.test(b);
  if (gone) return gone;
  const [m, n] = /^\d{4}-\d|^\d\d:\d/.test(a) ? [NaN, NaN] : [amount(a), amount(b)];
  return way * (Number.isNaN(m) || Number.isNaN(n) ? moment(a).localeCompare(moment(b)) : m - n);
}

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); if (!$("dialog[open]")) goTo(); return; }
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.closest?.("form.word")) {
    event.preventDefault();
    event.target.form.requestSubmit();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || $("dialog[open]")) return;
  const typing = event.target.matches("input, select, textarea");
  if (typing) { if (event.key === "Escape") event.target.blur(); return; }
  if (event.key === "Enter") { if (toggle()) event.preventDefault(); return; }
  // Elsewhere it scrolls, or presses what has the focus.
  if (event.key === " " && !event.target.matches("#rows a.open")) return;
  const act = Object.hasOwn(KEYS, event.key) && isOn(event.key) && KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

// -- while the page is seen: new traces each second at the top of their list; what changes by itself is drawn anew each five

let heard = onClock(new Date()).slice(11);
function away(yes) {
  const sign = $("#away");
  if (!yes) heard = onClock(new Date()).slice(11);
  if (!sign) return;
  sign.textContent = `not connected; as of ${heard}`;
  sign.hidden = !yes;
}
let wait = 1;
let waited = 0;
// Nothing is taken away from somebody who reads a table, sorted one, writes, marks words or has gone somewhere by keys.
const inUse = (main) => $("details[open], th[aria-sort]", main) || all("input", main).some((each) => each.value !== each.defaultValue)
  || getSelection().type === "Range" || (document.activeElement !== main && document.activeElement.closest("#main, #rail"));
// Who reads further down is told how many came, and led to them when they want.
async function tellOfNew(list) {
  try {
    const answer = await fetch(list.getAttribute("hx-get"), { headers: { accept: "text/html", "hx-request": "true" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html"), shown = new Set(all("#rows a.open").map((each) => each.id));
    const came = all("a.open", page).filter((each) => !shown.has(each.id)).length, pill = $("#above");
    pill.hidden = !came;
    pill.textContent = `${came} new ↑`;
    pill.onclick = () => { pill.hidden = true; scrollTo(0, 0); document.body.dispatchEvent(new CustomEvent("tick")); };
    away(false);
  } catch { away(true); }
}
setInterval(() => {
  const list = $("#rows[hx-get]"), asks = list ?? $("#main[hx-get]"), below = list && scrollY > 300;
  if (document.hidden || !asks || asks.matches(".htmx-request") || $("dialog[open]") || (!list && inUse(asks))) return;
  if (++waited < Math.max(wait, list && !below ? 1 : 5)) return;
  waited = 0;
  if (below) { tellOfNew(list); return; }
  $("#above")?.setAttribute("hidden", "");
  document.body.dispatchEvent(new CustomEvent(list ? "tick" : "anew"));
}, 1000);

document.addEventListener("DOMContentLoaded", () => {
  const theme = $("#theme"), help = $("#ask-help"), where = $("#ask-go");
  theme.hidden = help.hidden = where.hidden = false;
  where.onclick = goTo;
  const drawn = () => {
    all(".table table").forEach(sortable);
    copyable();
    tellTimes();
    // Something that fires is seen in the row of tabs.
    const icon = $("#icon"), is = $("#rail a[href='/alerts'] .count") ? icon.dataset.calls : icon.dataset.calm;
    if (icon.getAttribute("href") !== is) icon.setAttribute("href", is);
  };
  drawn();
  theme.onclick = flip;
  help.onclick = KEYS["?"];
  $("#single-keys").checked = isOn("j");
  $("#single-keys").onchange = ({ target }) => kept.set("keys", target.checked ? "on" : "off");
  const hidden = () => new Set(root.dataset.hide.split(" ").filter(Boolean));
  for (const each of all(".columns input")) {
    each.checked = !hidden().has(each.value);
    each.onchange = () => {
      const now = hidden();
      now[each.checked ? "delete" : "add"](each.value);
      root.dataset.hide = [...now].join(" ");
      kept.set("hide", root.dataset.hide);
    };
  }
  // A phone shows the talk first; the steps are a touch away.
  if (matchMedia("(max-width: 60rem)").matches) all(".tree > details").forEach((each) => { each.open = false; });
  // A link to a step unfolds it.
  const unfoldTarget = () => { const step = location.hash.startsWith("#s") && $(`[id="${CSS.escape(location.hash.slice(1))}"] > details`); if (step) step.open = true; };
  addEventListener("hashchange", unfoldTarget);
  unfoldTarget();

  const body = document.body;
  // An address names only the filters that are set.
  body.addEventListener("htmx:configRequest", ({ detail }) => {
    for (const [name, value] of Object.entries(detail.parameters)) if (value === "") delete detail.parameters[name];
  });
  body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.xhr.status === 400 && detail.target.id === "results") { detail.shouldSwap = true; detail.isError = false; }
  });
  body.addEventListener("htmx:afterRequest", ({ detail }) => { if (detail.xhr.status) { away(false); wait = 1; } });
  // A server that is gone is asked less often, and said to be gone.
  // What was sent from is gone with what was said: whoever goes by keys stays where they were.
  let told = false;
  body.addEventListener("htmx:beforeRequest", ({ detail }) => { told = Boolean(detail.elt.closest("#said")); });
  let along = 0;
  body.addEventListener("htmx:beforeSwap", () => { along = $("#rail")?.scrollLeft ?? 0; });
  body.addEventListener("htmx:afterSettle", () => { drawn(); if ($("#rail")) $("#rail").scrollLeft = along; });
  body.addEventListener("htmx:afterSettle", () => { if (told && document.activeElement === body) $("#said")?.focus(); told = false; });
  body.addEventListener("htmx:sendError", () => { away(true); wait = Math.min(wait * 2, 30); });
  body.addEventListener("htmx:responseError", ({ detail }) => {
    if (detail.xhr.status === 401) { location.reload(); return; }
    if (["rows", "main"].includes(detail.elt.id)) { away(true); wait = Math.min(wait * 2, 30); return; }
    const note = document.createElement("span");
    note.textContent = detail.xhr.responseText.slice(0, 300) || "That did not work.";
    $("#toast").replaceChildren(note);
  });
});
