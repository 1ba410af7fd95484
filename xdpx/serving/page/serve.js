"use strict";
// The page to try a model: what is typed is sent to the server, and its answer is drawn. Texts are never read as markup.

const SHOWN = 5, KEPT = 30;
const $ = (id) => document.getElementById(id);
const state = { models: [], model: null };

function made(kind, className, text) {
  const element = document.createElement(kind);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  const answer = await fetch(path, options);
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.detail ?? `The server answers ${answer.status}.`);
  return told;
}

// ---- which model

async function start() {
  try {
    state.models = await ask("models");
  } catch (error) {
    return tell(error.message, true);
  }
  for (const each of state.models) $("model").append(new Option(each.name, each.name));
  $("models").hidden = state.models.length < 2;
  $("model").onchange = () => choose($("model").value);
  choose(state.models[0].name);
}

function choose(name) {
  state.model = state.models.find((each) => each.name === name);
  const { texts, labels, checkpoint } = state.model;
  const shown = labels === null ? "" : labels.length > 6 ? `${labels.length} labels` : labels.join(" · ");
  $("about").textContent = [state.models.length < 2 ? name : "", shown].filter(Boolean).join(":  ");
  $("about").title = checkpoint ?? "";
  $("several").hidden = texts.length > 1;
  $("lines").checked &&= texts.length === 1;
  $("fields").className = texts.length > 1 ? "pair" : "";
  $("fields").replaceChildren(...texts.map((field, index) => {
    const area = made("textarea");
    area.setAttribute("aria-label", field);
    area.spellcheck = false;
    area.placeholder = texts.length > 1 ? "" : "Type or paste a text";
    area.onkeydown = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
    };
    if (texts.length === 1) return area;
    const label = made("label", "", field);
    label.append(area);
    return label;
  }));
  $("fields").querySelector("textarea").focus();
}

// ---- asking

function typed() {
  const texts = [...document.querySelectorAll("#fields textarea")].map((each) => each.value);
  if (texts.length > 1) return { rows: [texts], body: { pairs: [texts] } };
  const lines = $("lines").checked ? texts[0].split("\n").filter((line) => line.trim()) : texts;
  return { rows: lines.map((line) => [line]), body: { texts: lines } };
}

$("form").onsubmit = async (event) => {
  event.preventDefault();
  const { rows, body } = typed();
  if (!rows.some((row) => row.some((text) => text.trim()))) return;
  const begun = performance.now();
  $("go").disabled = true;
  try {
    const answers = await ask(`models/${encodeURIComponent(state.model.name)}/predict_batch`, body);
    show(rows, answers, performance.now() - begun);
    tell("", false);
  } catch (error) {
    tell(error.message, error instanceof TypeError);
  } finally {
    $("go").disabled = false;
  }
};

function tell(text, off) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
  $("state").textContent = off ? "no answer" : "ready";
  $("state").classList.toggle("off", off);
}

// ---- answers

function show(rows, answers, milliseconds) {
  $("hint")?.remove();
  const took = `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
  const card = answers.length === 1 ? single(rows[0], answers[0]) : table(rows, answers);
  card.prepend(made("span", "took", took));
  $("answers").prepend(card);
  while ($("answers").children.length > KEPT) $("answers").lastChild.remove();
}

function single(texts, answer) {
  const card = made("article", "answer");
  for (const text of texts) card.append(made("p", "said", text));
  const ranked = ranking(answer);
  if (!ranked.length) {
    card.append(made("div", "label", answer.score !== undefined ? String(answer.score) : answer.label ?? "no answer: too short"));
    return card;
  }
  if (answer.labels) card.append(made("div", "label", answer.labels.join(" · ") || "none of the labels"));
  card.append(bars(ranked, answer));
  if (ranked.length > SHOWN) card.append(made("p", "more", `and ${ranked.length - SHOWN} more`));
  return card;
}

function ranking(answer) {
  return Object.entries(answer.probabilities).sort((one, other) => other[1] - one[1]);
}

function bars(ranked, answer) {
  const chosen = new Set(answer.labels ?? [answer.label]);
  const grid = made("div", "bars");
  for (const [name, share] of ranked.slice(0, SHOWN)) {
    const first = chosen.has(name) ? "first " : "";
    const track = made("div", "track"), fill = made("div", `${first}fill`);
    fill.style.width = `${share * 100}%`;
    track.append(fill);
    const label = made("span", `${first}name`, name);
    label.title = name;
    grid.append(label, track, made("span", `${first}share`, `${(share * 100).toFixed(1)} %`));
  }
  return grid;
}

function table(rows, answers) {
  const card = made("article", "answer"), body = made("table");
  const head = made("tr");
  for (const name of ["text", "label", "probability"]) head.append(made("th", "", name));
  body.append(head);
  answers.forEach((answer, index) => {
    const row = made("tr"), share = answer.probabilities[answer.label];
    const told = share === undefined ? answer.score ?? "" : `${(share * 100).toFixed(1)} %`;
    row.append(made("td", "", rows[index].join(" | ")), made("td", "label", answer.label ?? "–"), made("td", "", String(told)));
    body.append(row);
  });
  card.append(body);
  return card;
}

tell("", false);
start();
