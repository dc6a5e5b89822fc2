// The question of a task as an element: <ostraka-question src="https://tally.example"></ostraka-question>.
// It shows what is asked, by whom, why, and at what price; sends one answer; and shows the signed result.

import { fromHex, noticeOf, OverBudget, OwnLedger, prepared, send } from "./collect.js";

const WORDS = {
  en: {
    title: "Answer privately", language: "Language", send: "Send once", value: "Your answer", x: "First number", y: "Second number",
    items: "Numbers of your items, with commas between them", purpose: "What for", controller: "Responsible", kept: "Whoever is responsible promises to delete reports after",
    days: (n) => `${n} days`, protection: "How you are protected", price: "What it costs you",
    keepers: "Your answer is masked on this device. The server adds up masked answers and learns a noisy sum only, as long as one of the keepers is honest.",
    clients: "Your answer is masked on this device together with those of other people. The server learns the sum only. Keep this page open until it says that your answer was received.",
    odds: (epsilon, factor, chance) => `Whatever anyone believes about you beforehand: one round can multiply the odds between any two answers of yours by at most ${factor} (ε = ${epsilon}), but for a chance of ${chance} in which nothing is promised.`,
    series: (rounds, epsilon, factor) => `All ${rounds} rounds together: at most ${factor} (ε = ${epsilon}).`,
    remainder: (left, budget) => `Of this collection's budget of ε = ${budget}, ${left} remains.`,
    range: (low, high, unit) => `Numbers from ${low} to ${high}${unit}. A smaller one counts as ${low}, a larger one as ${high}.`,
    clipped: (value, counts) => `${value} counts as ${counts}.`,
    points: (x, y) => `From ${x[0]} to ${x[1]}, and from ${y[0]} to ${y[1]}. What lies outside counts as the nearest end.`,
    most: (n) => `The first ${n} count.`, fingerprint: "Compare with what you were told",
    claim: "Have this claim signed by the enrolment", certificate: "Signature of the enrolment",
    share: "Joined. Waiting for the other people. Keep this page open.", mask: "Waiting for the other people's shares. Keep this page open.",
    confirm: "Your masked answer was sent. Waiting for the set of survivors. Keep this page open.",
    unmask: "Your masked answer was sent. Waiting for the last exchange. Keep this page open.",
    received: "Received. It will be counted once.", failed: (why) => `Not sent: ${why}`, choose: "Choose one answer first.",
    type: "Type a number first.", result: "The result", signed: "Signed by the tally.",
    median: (value, low, high, unit) => `The median is ${value}${unit}; with 95 % probability it lies between ${low} and ${high}.`,
    mean: (value, low, high, unit) => `The mean is ${value}${unit}; with 95 % probability it lies between ${low} and ${high}.`,
    numbers: (n) => `${n} numbers, with spaces between them`, length: (n, clip) => `A vector of ${n} numbers. A longer one than ${clip} is shortened to it.`,
    own: "Your own ledger", joined: (epsilon) => `All that you answered from this address: ε = ${epsilon}.`, after: (epsilon) => `With this answer: ${epsilon}.`,
    again: "You have answered this round here. Another answer would cost you the same again.", limit: "Stop me above ε =", fleeting: "This browser keeps no ledger: it ends with this page.",
    over: (asked, budget) => `all your answers would come to ε = ${asked}, above your limit of ${budget}.`,
    similar: "What others have with your items. This is computed on your device; your items do not leave it.",
    validity: "What is checked", checked: "The keepers and the server refuse reports that are no answers, and see nothing else of them.",
    unchecked: "Nothing but the form of a report: whoever lies can spoil the sum, and read no answer.",
    answer: "answer", people: "people", from: "from", to: "to",
  },
  de: {
    title: "Vertraulich antworten", language: "Sprache", send: "Einmal senden", value: "Ihre Antwort", x: "Erste Zahl", y: "Zweite Zahl",
    items: "Nummern Ihrer Dinge, durch Kommas getrennt", purpose: "Wozu", controller: "Verantwortlich", kept: "Die Verantwortlichen versprechen, Antworten zu löschen nach",
    days: (n) => `${n} Tagen`, protection: "Wie Sie geschützt sind", price: "Was es Sie kostet",
    keepers: "Ihre Antwort wird auf diesem Gerät maskiert. Der Server addiert maskierte Antworten und erfährt nur eine verrauschte Summe, solange einer der Hüter ehrlich ist.",
    clients: "Ihre Antwort wird auf diesem Gerät zusammen mit denen anderer Menschen maskiert. Der Server erfährt nur die Summe. Lassen Sie diese Seite offen, bis sie sagt, dass Ihre Antwort angekommen ist.",
    odds: (epsilon, factor, chance) => `Was immer jemand vorher über Sie glaubt: Eine Runde kann das Verhältnis der Wahrscheinlichkeiten zweier Antworten von Ihnen höchstens mit ${factor} multiplizieren (ε = ${epsilon}), bis auf eine Chance von ${chance}, in der nichts versprochen ist.`,
    series: (rounds, epsilon, factor) => `Alle ${rounds} Runden zusammen: höchstens mit ${factor} (ε = ${epsilon}).`,
    remainder: (left, budget) => `Vom Budget dieser Erhebung, ε = ${budget}, bleiben ${left}.`,
    range: (low, high, unit) => `Zahlen von ${low} bis ${high}${unit}. Eine kleinere zählt als ${low}, eine größere als ${high}.`,
    clipped: (value, counts) => `${value} zählt als ${counts}.`,
    points: (x, y) => `Von ${x[0]} bis ${x[1]}, und von ${y[0]} bis ${y[1]}. Was außerhalb liegt, zählt als das nächste Ende.`,
    most: (n) => `Die ersten ${n} zählen.`, fingerprint: "Vergleichen Sie mit dem, was Ihnen gesagt wurde",
    claim: "Lassen Sie diesen Anspruch von der Einschreibung unterschreiben", certificate: "Unterschrift der Einschreibung",
    share: "Beigetreten. Warten auf die anderen. Lassen Sie diese Seite offen.", mask: "Warten auf die Teile der anderen. Lassen Sie diese Seite offen.",
    confirm: "Ihre maskierte Antwort ist gesendet. Warten auf die Menge derer, die geblieben sind. Lassen Sie diese Seite offen.",
    unmask: "Ihre maskierte Antwort ist gesendet. Warten auf den letzten Austausch. Lassen Sie diese Seite offen.",
    received: "Angekommen. Sie wird einmal gezählt.", failed: (why) => `Nicht gesendet: ${why}`, choose: "Wählen Sie zuerst eine Antwort.",
    type: "Geben Sie zuerst eine Zahl ein.", result: "Das Ergebnis", signed: "Unterschrieben von der Zählstelle.",
    median: (value, low, high, unit) => `Der Median ist ${value}${unit}; mit 95 % Wahrscheinlichkeit liegt er zwischen ${low} und ${high}.`,
    mean: (value, low, high, unit) => `Der Mittelwert ist ${value}${unit}; mit 95 % Wahrscheinlichkeit liegt er zwischen ${low} und ${high}.`,
    numbers: (n) => `${n} Zahlen, durch Leerzeichen getrennt`, length: (n, clip) => `Ein Vektor aus ${n} Zahlen. Ein längerer als ${clip} wird darauf gekürzt.`,
    own: "Ihr eigenes Kassenbuch", joined: (epsilon) => `Alles, was Sie von dieser Adresse beantwortet haben: ε = ${epsilon}.`, after: (epsilon) => `Mit dieser Antwort: ${epsilon}.`,
    again: "Sie haben diese Runde hier beantwortet. Eine weitere Antwort kostet Sie noch einmal so viel.", limit: "Halten Sie mich an über ε =", fleeting: "Dieser Browser behält kein Kassenbuch: Es endet mit dieser Seite.",
    over: (asked, budget) => `Alle Ihre Antworten kämen auf ε = ${asked}, über Ihre Grenze von ${budget}.`,
    similar: "Was andere mit Ihren Dingen zusammen haben. Das wird auf Ihrem Gerät berechnet; Ihre Dinge verlassen es nicht.",
    validity: "Was geprüft wird", checked: "Hüter und Server weisen Meldungen zurück, die keine Antworten sind, und sehen sonst nichts davon.",
    unchecked: "Nichts als die Form einer Meldung: Wer lügt, kann die Summe verderben, und keine Antwort lesen.",
    answer: "Antwort", people: "Menschen", from: "von", to: "bis",
  },
  fr: {
    title: "Répondre en privé", language: "Langue", send: "Envoyer une fois", value: "Votre réponse", x: "Premier nombre", y: "Second nombre",
    items: "Numéros de vos articles, séparés par des virgules", purpose: "Pour quoi", controller: "Responsable", kept: "Le responsable promet d'effacer les réponses après",
    days: (n) => `${n} jours`, protection: "Comment vous êtes protégé", price: "Ce que cela vous coûte",
    keepers: "Votre réponse est masquée sur cet appareil. Le serveur additionne des réponses masquées et n'apprend qu'une somme bruitée, tant qu'un des gardiens est honnête.",
    clients: "Votre réponse est masquée sur cet appareil avec celles d'autres personnes. Le serveur n'apprend que la somme. Gardez cette page ouverte jusqu'à ce qu'elle dise que votre réponse est reçue.",
    odds: (epsilon, factor, chance) => `Quoi qu'on croie de vous auparavant : un tour peut multiplier le rapport des chances entre deux réponses de vous par ${factor} au plus (ε = ${epsilon}), sauf avec une chance de ${chance} où rien n'est promis.`,
    series: (rounds, epsilon, factor) => `Les ${rounds} tours ensemble : par ${factor} au plus (ε = ${epsilon}).`,
    remainder: (left, budget) => `Du budget de cette collecte, ε = ${budget}, il reste ${left}.`,
    range: (low, high, unit) => `Nombres de ${low} à ${high}${unit}. Un plus petit compte comme ${low}, un plus grand comme ${high}.`,
    clipped: (value, counts) => `${value} compte comme ${counts}.`,
    points: (x, y) => `De ${x[0]} à ${x[1]}, et de ${y[0]} à ${y[1]}. Ce qui est dehors compte comme le bout le plus proche.`,
    most: (n) => `Les ${n} premiers comptent.`, fingerprint: "Comparez avec ce qu'on vous a dit",
    claim: "Faites signer ceci par l'inscription", certificate: "Signature de l'inscription",
    share: "Inscrit. En attente des autres. Gardez cette page ouverte.", mask: "En attente des parts des autres. Gardez cette page ouverte.",
    confirm: "Votre réponse masquée est envoyée. En attente de ceux qui sont restés. Gardez cette page ouverte.",
    unmask: "Votre réponse masquée est envoyée. En attente du dernier échange. Gardez cette page ouverte.",
    received: "Reçue. Elle sera comptée une fois.", failed: (why) => `Non envoyée : ${why}`, choose: "Choisissez d'abord une réponse.",
    type: "Tapez d'abord un nombre.", result: "Le résultat", signed: "Signé par le compteur.",
    median: (value, low, high, unit) => `La médiane est ${value}${unit} ; avec une probabilité de 95 % elle est entre ${low} et ${high}.`,
    mean: (value, low, high, unit) => `La moyenne est ${value}${unit} ; avec une probabilité de 95 % elle est entre ${low} et ${high}.`,
    numbers: (n) => `${n} nombres, séparés par des espaces`, length: (n, clip) => `Un vecteur de ${n} nombres. Un plus long que ${clip} y est raccourci.`,
    own: "Votre propre registre", joined: (epsilon) => `Tout ce que vous avez répondu de cette adresse : ε = ${epsilon}.`, after: (epsilon) => `Avec cette réponse : ${epsilon}.`,
    again: "Vous avez répondu à ce tour ici. Une autre réponse vous coûterait autant encore.", limit: "M'arrêter au-dessus de ε =", fleeting: "Ce navigateur ne garde pas de registre : il finit avec cette page.",
    over: (asked, budget) => `toutes vos réponses feraient ε = ${asked}, plus que votre limite de ${budget}.`,
    similar: "Ce que d'autres ont avec vos articles. C'est calculé sur votre appareil ; vos articles ne le quittent pas.",
    validity: "Ce qui est vérifié", checked: "Les gardiens et le serveur refusent les envois qui ne sont pas des réponses, et n'en voient rien d'autre.",
    unchecked: "Rien que la forme d'un envoi : qui ment peut gâcher la somme, et ne lit aucune réponse.",
    answer: "réponse", people: "personnes", from: "de", to: "à",
  },
};
const LOOK = 5000, LOOKS = 720; // milliseconds between two looks for the result, and how many

function made(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "boolean") element.toggleAttribute(name, value); else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const factorOf = (epsilon) => { // rounded up, as an upper bound must be
  const factor = Math.exp(Math.min(epsilon, 700));
  return factor < 10 ? Math.ceil(100 * factor) / 100 : Math.ceil(factor);
};

const NUMBERS = ["Histogram", "Tree", "Sum"]; // kinds whose answer is one number

// The range of numbers that count as they are: of a tree whole ones, whose end is not one of them
const rangeOf = (encoding) => encoding.kind === "Tree" ? [encoding.low, encoding.high - 1] : [encoding.low, encoding.high];

let elements = 0;

export class OstrakaQuestion extends HTMLElement {
  #number = elements++; #base; #one; #notice = null; #sent = false; #language; #ledger = new OwnLedger(); #charged = null; #items = [];

  async connectedCallback() {
    this.#base = new URL(this.getAttribute("src") ?? ".", location.href).href.replace(/\/$/, "");
    try {
      this.#one = await prepared(this.#base);
      this.#notice = await noticeOf(this.#base, this.#one).catch(() => null); // a tally of before has none
    } catch (error) {
      this.replaceChildren(made("p", { role: "alert" }, error.message));
      return;
    }
    const asked = navigator.languages.map((code) => code.slice(0, 2));
    this.#language = asked.find((code) => this.#offered.includes(code)) ?? this.#offered[0];
    this.#show();
  }

  // Languages that both the question and this page have; without a question all of the page
  get #offered() {
    const { question } = this.#one.task, known = Object.keys(WORDS);
    if (!question) return known;
    const both = Object.keys(question.text).filter((code) => known.includes(code));
    return both.length ? both : ["en"];
  }

  get #words() { return WORDS[this.#language]; }

  #text(name) {
    const texts = this.#one.task.question?.[name] ?? {};
    return texts[this.#language] ?? Object.values(texts)[0] ?? "";
  }

  #id(name) { return this.#number ? `${name}-${this.#number}` : name; }

  #part(name) { return this.querySelector(`#${this.#id(name)}`); }

  get #unit() { const unit = this.#text("unit"); return unit ? ` ${unit}` : ""; }

  #show() {
    const words = this.#words, { task, sha, claim } = this.#one, { question } = task, id = (name) => this.#id(name);
    this.lang = this.#language;
    const about = made("dl");
    const row = (name, ...texts) => about.append(made("dt", {}, name), made("dd", {}, ...texts));
    if (question) {
      row(words.purpose, this.#text("purpose"));
      row(words.controller, `${question.controller}, ${question.contact}`);
      row(words.kept, words.days(question.keep_days));
    }
    row(words.protection, made("span", { id: id("hidden") }, words[task.trust]));
    row(words.validity, made("span", { id: id("checks") }, words[task.checked ? "checked" : "unchecked"]));
    if (question) {
      const local = (number) => number.toLocaleString(this.#language, { maximumFractionDigits: 3 });
      const bound = (epsilon) => [local(Math.ceil(1000 * epsilon - 1e-9) / 1000), local(factorOf(epsilon))];
      const price = [words.odds(...bound(question.epsilon), `1 : ${local(Math.floor(1 / question.delta + 1e-6))}`)];
      if (task.rounds > 1) price.push(words.series(local(task.rounds), ...bound(question.series)));
      row(words.price, made("span", { id: id("price") }, price.join(" ")), made("span", { id: id("remainder") }));
      const limit = made("input", { id: id("limit"), inputmode: "decimal", autocomplete: "off", value: this.#ledger.budget });
      limit.addEventListener("change", () => {
        try { this.#ledger.budget = Number(limit.value.replace(",", ".")); } catch { limit.value = this.#ledger.budget; }
        this.#tellOwn();
      });
      row(words.own, made("span", { id: id("own") }), " ", made("label", { for: id("limit") }, words.limit), " ", limit);
    }
    row(words.fingerprint, made("code", { id: id("sha") }, sha));
    const form = made("form", { id: id("form"), novalidate: true }, ...this.#fields());
    if (task.enrolment !== null) {
      form.append(made("p", { id: id("enrolment") }, `${words.claim}: `, made("code", { id: id("claim") }, claim)),
        made("label", { for: id("certificate") }, words.certificate), made("input", { id: id("certificate"), autocomplete: "off" }));
    }
    form.append(made("button", {}, words.send));
    form.addEventListener("submit", (event) => { event.preventDefault(); this.#send(); });
    const parts = [made("h1", {}, this.#text("title") || words.title)];
    if (this.#offered.length > 1) parts.push(this.#languages());
    parts.push(form, made("p", { id: id("said"), role: "status" }), made("section", { id: id("result"), hidden: true }), about);
    this.replaceChildren(...parts);
    if (this.getAttribute("src") === null) document.title = parts[0].textContent;
    this.#tell();
  }

  #languages() {
    const names = new Intl.DisplayNames(this.#language, { type: "language" });
    const select = made("select", { id: this.#id("language") },
      ...this.#offered.map((code) => made("option", { value: code, selected: code === this.#language, lang: code }, names.of(code))));
    select.addEventListener("change", () => { this.#language = select.value; this.#show(); this.#part("language").focus(); });
    return made("p", { class: "language" }, made("label", { for: this.#id("language") }, this.#words.language), select);
  }

  #fields() {
    const words = this.#words, { encoding, question } = this.#one.task, id = (name) => this.#id(name);
    const asked = this.#text("text") || words.value;
    if (question && Object.keys(question.choices).length) {
      const buttons = this.#text("choices").map((choice, number) => made("label", { class: "choice" },
        made("input", { type: "radio", name: id("value"), value: number }), made("span", {}, choice)));
      return [made("fieldset", { id: id("value") }, made("legend", {}, asked), ...buttons)];
    }
    const number = (name) => made("input", { id: id(name), inputmode: "decimal", autocomplete: "off", required: true, "aria-describedby": `${id("hint")} ${id("clipped")}` });
    const hint = (text) => [made("p", { id: id("hint"), class: "soft" }, text), made("p", { id: id("clipped"), class: "warn", "aria-live": "polite" })];
    if (encoding.kind === "Grid" || encoding.kind === "Visits") {
      return [made("p", {}, asked), made("label", { for: id("value") }, words.x), number("value"), made("label", { for: id("second") }, words.y), number("second"),
        ...hint(words.points(encoding.x, encoding.y))];
    }
    const field = number("value");
    if (encoding.kind === "Histograms" || encoding.kind === "Vector") {
      const hints = encoding.kind === "Vector" ? words.length(encoding.cells, encoding.clip) : encoding.parts.map(([from, to]) => words.range(from, to, this.#unit)).join(" ");
      return [made("p", {}, asked), made("label", { for: id("value") }, words.numbers(encoding.parts?.length ?? encoding.cells)), field, ...hint(hints)];
    }
    if (!NUMBERS.includes(encoding.kind)) {
      return [made("p", {}, asked), made("label", { for: id("value") }, words.items), field, ...hint(words.most(encoding.at_most))];
    }
    const [low, high] = rangeOf(encoding);
    field.addEventListener("input", () => {
      const value = field.value.trim() === "" ? NaN : Number(field.value.replace(",", "."));
      const counts = Math.min(Math.max(value, low), high);
      this.#part("clipped").textContent = Number.isNaN(value) || counts === value ? "" : words.clipped(value, counts);
    });
    return [made("label", { for: id("value") }, asked), field, ...hint(words.range(low, high, this.#unit))];
  }

  // The answer that was typed or chosen; null if there is none
  #answer() {
    const { encoding, question } = this.#one.task, typed = (name) => this.#part(name).value.trim();
    const number = (text) => text === "" ? NaN : Number(text.replace(",", "."));
    if (question && Object.keys(question.choices).length) {
      const chosen = this.querySelector("input[type=radio]:checked");
      return chosen && Number(chosen.value);
    }
    if (encoding.kind === "Grid" || encoding.kind === "Visits") {
      const point = [number(typed("value")), number(typed("second"))];
      return point.some(Number.isNaN) ? null : point;
    }
    if (NUMBERS.includes(encoding.kind)) {
      const value = number(typed("value"));
      return Number.isNaN(value) ? null : value;
    }
    const items = typed("value").replace(/[[\]]/g, "").split(/[\s,]+/).filter(Boolean).map(Number);
    return items.some(Number.isNaN) ? null : items;
  }

  async #send() {
    const words = this.#words, said = this.#part("said"), button = this.querySelector("button"), answer = this.#answer();
    if (answer === null) {
      said.textContent = this.#one.task.question && Object.keys(this.#one.task.question.choices).length ? words.choose : words.type;
      this.querySelector("input").focus();
      return;
    }
    const fields = [...this.querySelectorAll("input, select")].filter((field) => field !== this.#part("limit")), certificate = this.#part("certificate")?.value.trim();
    const { sha, round, task: { question } } = this.#one, certify = () => fromHex(certificate), onStage = (stage) => { said.textContent = words[stage]; };
    for (const field of [button, ...fields]) field.disabled = true;
    try {
      if (question && this.#charged !== this.#one) this.#ledger.charge({ sha, round, question }); // before anything is sent
      this.#charged = this.#one;
      this.#tellOwn();
      await send(this.#base, answer, { expected: this.#one.sha, ready: this.#one, certify, onStage });
      this.#sent = true;
      if (Array.isArray(answer)) this.#items = answer;
      for (const field of fields) { if (field.type === "radio") field.checked = false; else if (field.tagName === "INPUT") field.value = ""; }
      said.textContent = words.received;
      this.#watch();
    } catch (error) {
      said.textContent = words.failed(error instanceof OverBudget ? words.over(this.#local(error.asked), this.#local(error.budget)) : error.message);
      button.disabled = false;
      if (this.#one.message === null) for (const field of fields) field.disabled = false; // else the same message is sent again
      if (this.#one.client?.used) {
        this.#one = await prepared(this.#base);
        if (this.#part("claim")) this.#part("claim").textContent = this.#one.claim;
      }
    }
  }

  // Recommend by the released counts: computed here, from items that the person has just sent or types now
  async #recommend(place, { sums, n_clients: n, variance }) {
    const { similarity, ranked } = await import("./similar.js");
    const words = this.#words, likelihood = similarity(sums, this.#one.task.encoding, n, variance);
    const field = made("input", { id: this.#id("items"), autocomplete: "off", value: this.#items.join(" ") });
    const list = made("ol", { id: this.#id("similar") });
    const show = () => {
      const items = field.value.split(/[\s,]+/).filter(Boolean).map(Number);
      try { list.replaceChildren(...ranked(likelihood, items, 10).map((item) => made("li", {}, String(item)))); } catch (error) { list.replaceChildren(error.message); }
    };
    field.addEventListener("input", show);
    show();
    place.insertBefore(made("div", {}, made("p", {}, words.similar), made("label", { for: field.id }, words.items), field, list), place.lastChild);
  }

  // Look for the signed result until it is there
  async #watch() {
    for (let look = 0; look < LOOKS && !this.#notice?.result && this.isConnected; look++) {
      await new Promise((done) => setTimeout(done, LOOK));
      this.#notice = await noticeOf(this.#base, this.#one).catch(() => this.#notice);
    }
    this.#tell();
  }

  #local(number) { return number.toLocaleString(this.#language, { maximumFractionDigits: 3 }); }

  // Show what the person's own ledger counts, over all tasks that were answered from pages of this address
  #tellOwn() {
    const place = this.#part("own"), words = this.#words, up = (number) => this.#local(Math.ceil(1000 * number - 1e-9) / 1000);
    if (!place) return;
    const { sha, round, task: { question } } = this.#one, parts = [words.joined(up(this.#ledger.spent().epsilon))];
    if (this.#ledger.answered(sha, round)) parts.push(words.again);
    else parts.push(words.after(up(this.#ledger.spent({ sha, round, question }).epsilon)));
    if (!this.#ledger.lasts) parts.push(words.fleeting);
    place.textContent = parts.join(" ");
  }

  // Show the remainder of the budget, and the result if there is one
  #tell() {
    this.#tellOwn();
    const words = this.#words, notice = this.#notice, remainder = this.#part("remainder");
    if (notice && remainder && notice.budget > 0) {
      const left = Math.floor(1000 * Math.max(0, notice.budget - notice.spent)) / 1000;
      const local = (number) => number.toLocaleString(this.#language, { maximumFractionDigits: 3 });
      remainder.textContent = ` ${words.remainder(local(left), local(notice.budget))}`;
    }
    const place = this.#part("result"), result = notice?.result;
    if (!result) return;
    place.hidden = false;
    place.replaceChildren(made("h2", {}, words.result));
    if (result.value !== undefined) {
      place.append(made("p", { class: "answer" }, words[result.of ?? "median"](...[result.value, result.low, result.high].map((one) => one.toLocaleString(this.#language, { maximumFractionDigits: 3 })), this.#unit)));
    } else if (result.people && !Array.isArray(result.people[0])) {
      const names = this.#text("choices") || result.answers;
      const head = made("tr", {}, ...[words.answer, words.people, words.from, words.to].map((name) => made("th", { scope: "col" }, name)));
      const rows = result.people.map((count, at) => made("tr", {}, made("th", { scope: "row" }, names[at]),
        ...[count, result.low[at], result.high[at]].map((one) => made("td", {}, Math.round(one).toLocaleString(this.#language)))));
      place.append(made("table", {}, made("thead", {}, head), made("tbody", {}, ...rows)));
    }
    if (result.sums) this.#recommend(place, result);
    place.append(made("p", { class: "soft" }, words.signed));
    if (this.#sent) this.#part("said").textContent = words.received;
  }
}

if (typeof customElements !== "undefined") customElements.define("ostraka-question", OstrakaQuestion);
