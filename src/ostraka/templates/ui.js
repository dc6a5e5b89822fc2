"use strict";
// The page of `ostraka ui`: it shows the state that the process has, and sends what a person chooses.

const WAYS = [
  ["filter", "Filter", "In each of five rounds, every row adds what the model so far gets wrong about it. For tables."],
  ["counts", "Counts", "Every row casts one ballot in one table of noisy counts. For images."],
  ["rounds", "Rounds", "Every row votes twelve times for what the model so far gets wrong. For many rows of numbers."],
  ["argmax", "Teachers", "Models that each saw their own part of the rows vote on public rows."],
];
const HEADINGS = {
  planning: "Making the plan", planned: "The plan", running: "Learning", done: "Done",
  stopped: "Stopped: what was paid for is kept", refused: "Nothing was spent", failed: "It did not end well",
};
const SVG = "http://www.w3.org/2000/svg";
const $ = id => document.getElementById(id);
let state = null, way = "", place = 3, waiting = false, before = "";

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function drawn(name, attributes = {}, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

async function ask(path, body, raw) {
  const options = body === undefined ? {} : {
    method: "POST", body: raw ? body : JSON.stringify(body),
    headers: { "content-type": raw ? "application/octet-stream" : "application/json" },
  };
  let said;
  try {
    const reply = await fetch(path, options);
    said = await reply.json();
    if (!reply.ok) throw new Error(said.error);
  } catch (error) {
    complain(error instanceof TypeError ? "The command has ended. Start it again: ostraka ui" : error.message);
    return;
  }
  complain("");
  show(said);
}

function complain(text) {
  $("error").hidden = !text;
  if ($("error").textContent !== text) $("error").textContent = text;
}

function tell(text) { if ($("status").textContent !== text) $("status").textContent = text; }

function show(next) {
  state = next;
  if (state.error) complain(state.error);
  tables();
  about();
  findings();
  pricing();
  releases();
  runs();
  const release = state.release;
  const at_work = state.busy || (release && ["planning", "running"].includes(release.status)) || forecasting();
  tell(state.busy ? "Looking at the table" : release ? HEADINGS[release.status] : state.check ? "The table was looked at" : "");
  if (at_work && !waiting) {
    waiting = true;
    setTimeout(() => { waiting = false; ask("/state"); }, 500);
  }
}

function forecasting() { return state.outlook && !state.outlook.done; }

function tables() {
  for (const role of ["private", "public"]) {
    const name = state.tables[role];
    $(`file-${role}`).hidden = !name;
    $(`file-${role}`).textContent = name || "";
  }
}

function choices(select, names, chosen, none) {
  const wanted = JSON.stringify([names, none]);
  if (select.dataset.names !== wanted) {
    select.dataset.names = wanted;
    select.replaceChildren(element("option", none, { value: "" }), ...names.map(name => element("option", name, { value: name })));
  }
  if (document.activeElement !== select) select.value = chosen || "";
}

function about() {
  const check = state.check;
  $("about").hidden = !check;
  for (const later of document.querySelectorAll(".later[data-needs]")) {
    later.hidden = Boolean(later.dataset.needs === "check" ? check : check && check.ready);
    if (later.dataset.needs === "check" && state.busy && !check) later.textContent = "Looking at the table …";
  }
  if (!check) return;
  const columns = Object.keys(check.columns);
  const likely = [...check.candidates, ...columns.filter(name => !check.candidates.includes(name))];
  choices($("label"), likely, check.label, "choose a column");
  choices($("person"), columns.filter(name => name !== check.label), check.person, "choose a column");
  for (const radio of document.querySelectorAll("input[name=unit]")) {
    if (check.rows_are_people || check.person) radio.checked = radio.value === (check.person ? "person" : "rows");
  }
  $("held").hidden = Boolean(state.tables.public);
  $("holdout").checked = check.holdout;
}

function send() {
  const unit = document.querySelector("input[name=unit]:checked");
  const person = unit && unit.value === "person" ? $("person").value : "";
  ask("/check", {
    label: $("label").value, person, rows_are_people: Boolean(unit && unit.value === "rows"),
    holdout: !$("held").hidden && $("holdout").checked, epsilon: state.steps[place].epsilon,
  });
}

function findings() {
  const check = state.check;
  $("found").hidden = !check;
  if (!check || before === JSON.stringify(check)) return;
  before = JSON.stringify(check);
  const number = value => value.toLocaleString("en");
  $("size").textContent = `${check.name}: ${number(check.n_rows)} rows, ${number(check.n_columns)} columns, ${number(check.n_units)} ${check.unit === "row" ? "rows" : "people"} to protect.`;
  const groups = check.groups.flatMap(group => [element("h3", group.heading), ...group.findings.map(one => {
    const box = element("div", undefined, { class: `finding ${one.weight}` });
    box.append(element("p", one.text));
    if (one.hint) {
      const hint = element("p", "proposed: ", { class: "soft" });
      hint.append(element("code", one.hint));
      box.append(hint);
    }
    return box;
  })]);
  $("groups").replaceChildren(...(groups.length ? groups : [element("p", "Nothing is wrong or doubtful.")]));
  const classes = Object.entries(check.classes).sort((a, b) => b[1] - a[1]).slice(0, 12);
  const largest = Math.max(1, ...classes.map(one => one[1]));
  $("classes").replaceChildren(...(classes.length ? [element("h3", `Rows of each class in ${check.label}`)] : []), ...classes.map(([name, count]) => {
    const row = element("div", undefined, { class: "value" }), bar = element("i", undefined, { "aria-hidden": "true" });
    bar.style.width = `${100 * count / largest}%`;
    row.append(element("span", name), bar, element("b", number(count)));
    return row;
  }));
  $("columns").replaceChildren(...Object.entries(check.columns).map(([name, facts]) => {
    const row = element("tr");
    row.append(element("th", name, { scope: "row" }), element("td", facts.kind), element("td", number(facts.n_values), { class: "n" }), element("td", `${(100 * facts.missing).toFixed(1)} %`, { class: "n" }));
    return row;
  }));
}

function expected(name, epsilon) {
  const known = ((state.outlook && state.outlook.ways[name]) || []).find(one => one[0] === epsilon);
  return known && known[1];
}

function pricing() {
  const ready = Boolean(state.check && state.check.ready && state.steps.length);
  $("pricing").hidden = $("spending").hidden = !ready;
  if (!state.steps.length) return;
  $("slider").max = state.steps.length - 1;
  if (document.activeElement !== $("slider")) $("slider").value = place;
  const step = state.steps[place];
  $("epsilon").textContent = step.epsilon;
  $("delta").textContent = `δ = ${step.delta}`;
  $("unit").textContent = `for one ${state.check.unit}`;
  $("words").textContent = step.words;
  $("slider").setAttribute("aria-valuetext", `epsilon ${step.epsilon}. ${step.words}`);
  if (!ready) return;
  attack(step);
  curve(step);
  options(step);
  const release = state.release;
  $("plan").disabled = Boolean(state.busy || (release && ["planning", "running"].includes(release.status)));
}

function attack(step) {
  const right = Math.ceil(100 * step.detected);
  const rows = [["nothing released", 5, "before"], [`ε = ${step.epsilon}`, right, "bar"], ["no privacy", 100, "none"]];
  const svg = drawn("svg", { viewBox: "0 0 360 150", "aria-hidden": "true" });
  rows.forEach(([name, share, kind], k) => {
    const y = 6 + 48 * k;
    svg.append(
      drawn("text", { x: 0, y: y + 11, class: k === 1 ? "bold" : "soft" }, name),
      drawn("rect", { x: 0, y: y + 17, width: 3 * share, height: 16, class: kind }),
      drawn("text", { x: 3 * share + 7, y: y + 30, class: k === 1 ? "bold" : "" }, String(share)),
    );
  });
  $("attack").replaceChildren(svg);
  $("attack").setAttribute("aria-label", `With nothing released she is right in 5 of 100 cases, at epsilon ${step.epsilon} in at most ${right}, without privacy in 100.`);
}

function curve(step) {
  const left = 34, right = 350, top = 12, bottom = 150;
  const epsilons = state.steps.map(one => one.epsilon);
  const known = WAYS.flatMap(([name]) => ((state.outlook && state.outlook.ways[name]) || []).filter(one => one[1]));
  const low = Math.max(0, Math.floor(10 * Math.min(0.9, ...known.map(one => one[1][1])) - 0.5) / 10);
  const x = epsilon => left + (right - left) * epsilons.indexOf(epsilon) / (epsilons.length - 1);
  const y = share => bottom - (bottom - top) * (share - low) / (1 - low);
  const svg = drawn("svg", { viewBox: "0 0 360 200", "aria-hidden": "true" });
  for (let tick = Math.round(10 * low); tick <= 10; tick += (1 - low > 0.5 ? 2 : 1)) {
    svg.append(drawn("line", { x1: left, x2: right, y1: y(tick / 10), y2: y(tick / 10), class: "grid" }), drawn("text", { x: left - 6, y: y(tick / 10) + 4, "text-anchor": "end", class: "soft" }, String(10 * tick)));
  }
  epsilons.forEach(epsilon => svg.append(drawn("text", { x: x(epsilon), y: bottom + 18, "text-anchor": "middle", class: epsilon === step.epsilon ? "bold" : "soft" }, String(epsilon))));
  svg.append(drawn("line", { x1: x(step.epsilon), x2: x(step.epsilon), y1: top, y2: bottom, class: "now" }), drawn("text", { x: (left + right) / 2, y: bottom + 40, "text-anchor": "middle", class: "soft" }, "price, ε"));
  WAYS.forEach(([name], k) => {
    const points = ((state.outlook && state.outlook.ways[name]) || []).filter(one => one[1]).map(([epsilon, ends]) => [x(epsilon), y(ends[1])]);
    const group = drawn("g", { class: `way${k}` });
    if (points.length) group.append(drawn("polyline", { points: points.map(point => point.join(",")).join(" "), class: "path" }), ...points.map(([cx, cy]) => drawn("circle", { cx, cy, r: 2.6, class: "dot" })));
    svg.append(group);
  });
  $("curve").replaceChildren(svg);
  $("curve").setAttribute("aria-label", "Expected accuracy of each way at each price. The table below has the numbers of the chosen price.");
  const basis = state.outlook ? state.outlook.basis : "";
  $("basis").textContent = basis ? `A forecast, no promise: ${basis}.${forecasting() ? " More is being computed." : ""}` : "Being computed from public rows …";
}

function options(step) {
  const recommended = state.outlook ? state.outlook.recommended[place] : WAYS[0][0];
  const chosen = way || recommended;
  const rows = WAYS.map(([name, title, about], k) => {
    const ends = expected(name, step.epsilon);
    const excluded = name === "rounds" && state.check.unit === "person";
    const row = element("tr", undefined, name === recommended ? { class: "best" } : {});
    const head = element("th", undefined, { scope: "row" });
    const label = element("label"), radio = element("input", undefined, { type: "radio", name: "way", value: name });
    const key = drawn("svg", { class: `key way${k}`, viewBox: "0 0 26 12", "aria-hidden": "true" }), mark = drawn("g", { class: `way${k}` });
    mark.append(drawn("polyline", { points: "0,6 26,6", class: "path" }));
    key.append(mark);
    radio.checked = name === chosen;
    radio.disabled = excluded || ends === null;
    label.append(radio, key, name === recommended ? `${title} (recommended)` : title);
    head.append(label, element("p", excluded ? "Protects rows, not people." : ends === null ? "At this price noise would drown the data." : about, { class: "soft" }));
    const percent = share => String(Math.round(100 * share));
    row.append(head, element("td", ends ? percent(ends[1]) : ends === undefined && !excluded ? "…" : "–", { class: "n" }), element("td", ends ? `${percent(ends[0])} to ${percent(ends[2])}` : "–", { class: "n" }));
    return row;
  });
  const focused = document.activeElement && document.activeElement.name === "way" ? document.activeElement.value : "";
  $("ways").replaceChildren(...rows);
  if (focused) document.querySelector(`input[name=way][value=${focused}]`).focus({ preventScroll: true });
}

let announced = "";

function releases() {
  const release = state.release;
  $("release").hidden = !release;
  if (!release) { announced = ""; return; }
  const mark = release.name + release.status;
  $("progress").textContent = HEADINGS[release.status];
  $("clock").textContent = release.status === "planned" ? "Nothing is spent yet." : `${Math.round(release.seconds)} seconds`;
  $("lines").textContent = release.lines.join("\n") || "…";
  $("command").textContent = release.command;
  $("pay").hidden = release.status !== "planned";
  const words = release.command.split(" "), epsilon = words[words.indexOf("--epsilon") + 1];
  $("pay").textContent = `Spend ε ≤ ${epsilon} of ${state.tables.private || "this table"}`;
  $("stop").hidden = !["planning", "running"].includes(release.status);
  if (mark !== announced && announced && ["planned", "done", "failed", "refused"].includes(release.status)) $("progress").focus();
  announced = mark;
}

function runs() {
  $("none").hidden = state.runs.length > 0;
  const active = state.release && ["planning", "running"].includes(state.release.status);
  const shown = JSON.stringify([state.runs, active]);
  if ($("runs").dataset.shown === shown) return;
  $("runs").dataset.shown = shown;
  $("runs").replaceChildren(...state.runs.slice().reverse().map(run => {
    const box = element("div", undefined, { class: "run" });
    box.append(element("h3", `Run ${Number(run.name)}`));
    if (!run.finished) {
      box.append(element("p", "It has not ended. What was paid for is kept, and used again."));
      const again = element("button", "Show its plan, to go on", { type: "button", class: "button" });
      again.disabled = Boolean(active);
      again.addEventListener("click", () => ask("/plan", { run: run.name }));
      box.append(again);
      return box;
    }
    box.append(element("p", run.claim));
    const list = element("ul");
    list.append(...run.files.map(file => {
      const row = element("li"), link = element("a", file.name, { href: `/runs/${run.name}/${file.name}` });
      if (file.page) link.target = "_blank"; else link.setAttribute("download", file.name);
      row.append(link, element("span", `${file.what}, ${file.kilobytes.toLocaleString("en")} kB`), element("span", file.owner ? "for you alone" : "may be passed on", { class: file.owner ? "secret" : "soft" }));
      return row;
    }));
    box.append(list);
    return box;
  }));
}

function upload(role, file) {
  if (!file) return;
  tell(`Reading ${file.name}`);
  way = "";
  ask(`/table?role=${role}&name=${encodeURIComponent(file.name)}`, file, true);
}

for (const role of ["private", "public"]) {
  const zone = $(`drop-${role}`), input = $(`input-${role}`);
  input.addEventListener("change", () => { upload(role, input.files[0]); input.value = ""; });
  zone.addEventListener("dragover", event => { event.preventDefault(); zone.classList.add("over"); });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", event => { event.preventDefault(); zone.classList.remove("over"); upload(role, event.dataTransfer.files[0]); });
}
$("about").addEventListener("submit", event => event.preventDefault());
$("about").addEventListener("change", event => {
  if (event.target === $("person") && $("person").value) document.querySelector("input[name=unit][value=person]").checked = true;
  const unit = document.querySelector("input[name=unit]:checked");
  if (unit && unit.value === "person" && !$("person").value) { $("person").focus(); return; }
  send();
});
$("slider").addEventListener("input", () => { place = Number($("slider").value); way = ""; pricing(); });
$("ways").addEventListener("change", event => { way = event.target.value; });
$("plan").addEventListener("click", () => {
  const chosen = document.querySelector("input[name=way]:checked");
  announced = "asked";
  ask("/plan", { way: chosen ? chosen.value : "counts", epsilon: state.steps[place].epsilon });
});
$("pay").addEventListener("click", () => { $("pay").disabled = true; ask("/spend", { ticket: state.release.ticket }).finally(() => { $("pay").disabled = false; }); });
$("stop").addEventListener("click", () => ask("/stop", {}));

history.replaceState(null, "", "/");  // the key of the link has done its work
ask("/state");
