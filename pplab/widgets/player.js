// A player of schedules: a clock that moves over pictures that Python drew, and what each device does, holds and
// waits for at that time. Stands behind player_timeline.js, as one module: for anywidget in notebooks (the default
// export) and, followed by player_page.js, for pages without a kernel. It computes no schedule and draws no picture.

/** An element with attributes (on…: listeners) and children. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A cell of the table, with the colour of the kind that runs. */
function tableCell({ text, kind }) {
  return make("td", { title: text }, ...(kind ? [make("i", { class: `pplab-${kind}` })] : []), text);
}

/** A box in which something wide can be moved sideways, by the arrow keys too. */
function scroll(...children) {
  return make("div", { class: "pplab-scroll", tabindex: "0", role: "group", "aria-label": "table" }, ...children);
}

/** Copy a text; the old way where the page is not served securely. */
async function copy(text, near) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { "aria-hidden": "true", class: "pplab-away" });
    area.value = text;
    near.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** The player itself: build it in an element, then give it something to show, again and again. */
class Player {
  constructor(root, { onReset = () => {}, link = null } = {}) {
    Object.assign(this, { root, onReset, link, time: 0, until: 0, device: 0 });
    Object.assign(this, { shown: null, timelines: null, playing: 0, waiting: 0 });
    root.classList.add("pplab-player");
    // In JupyterLab, keys are ours while the focus is here; it looks for this at the very element that has it.
    root.addEventListener("focusin", ({ target }) => (target.dataset.lmSuppressShortcuts = "true"));
    this.#buildBar();
    this.pictures = make("div", { class: "pplab-pictures" });
    this.table = make("table");
    const summary = make("summary", {}, "what each device does, holds and waits for");
    this.now = make("details", { class: "pplab-now", ontoggle: () => this.#tell(true) }, summary, scroll(this.table));
    this.tip = make("div", { class: "pplab-tip", "aria-hidden": "true", hidden: "" });
    this.voice = make("div", { class: "pplab-away", role: "status" }); // the tip's text where a key brought it
    root.append(this.bar, this.pictures, this.now, this.tip, this.voice);
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("pointerdown", ({ target }) => {
      if (!this.copyMenu.contains(target)) this.copyMenu.open = false;
    });
  }

  #buildBar() {
    const button = (label, onclick, title) => make("button", { type: "button", onclick, title }, label);
    this.playButton = button("▶ play", () => this.toggle(), "play or pause (space)");
    const back = button("◂ step", () => this.step(-1), "to the moment before at which something changes (←)");
    const on = button("step ▸", () => this.step(1), "to the next moment at which something changes (→)");
    back.setAttribute("aria-label", "step back");
    on.setAttribute("aria-label", "step forward");
    this.scrub = make("input", { type: "range", min: 0, step: "any", value: 0, "aria-label": "time" });
    this.scrub.addEventListener("input", () => this.seek(Number(this.scrub.value)));
    this.clock = make("span", { class: "pplab-clock" });
    this.copies = make("div");
    const menu = { class: "pplab-copy", ontoggle: () => this.#fillCopies() };
    this.copyMenu = make("details", menu, make("summary", {}, "copy"), this.copies);
    const reset = button("reset", () => this.reset(), "back to time 0 and to the first sizes");
    const parts = [this.playButton, back, on, this.scrub, this.clock, this.copyMenu, reset];
    this.bar = make("div", { class: "pplab-bar", role: "group", "aria-label": "play through time" }, ...parts);
  }

  /** Show pictures, and keep the clock where it is: at once, but of several calls within a frame only the last. */
  show(shown) {
    this.shown = shown;
    if (this.waiting) return;
    this.#draw();
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      if (this.shown !== shown) this.show(this.shown);
    });
  }

  #draw() {
    const { items, until } = this.shown;
    this.timelines = null;
    this.until = this.scrub.max = until;
    this.scrub.disabled = this.playButton.disabled = !until;
    while (this.pictures.children.length > items.length) this.pictures.lastChild.remove();
    items.forEach((item, i) => {
      const box = this.pictures.children[i] || this.pictures.appendChild(this.#picture());
      box.innerHTML = item.html;
      box.hidden = Boolean(item.hidden);
      if (!item.columns) return;
      box.setAttribute("aria-label", `${item.name}: arrow keys choose a time and a device`);
      const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
      cursor.setAttribute("class", "pplab-cursor");
      box.querySelector("svg").append(cursor);
    });
    this.seek(Math.min(this.time, until));
  }

  #picture() {
    const box = make("div", { class: "pplab-picture", role: "group", tabindex: "0" });
    box.addEventListener("pointermove", (event) => {
      const place = this.#place(box, event);
      this.#point(place, event);
      if (place && event.buttons & 1) this.seek(place.time);
    });
    box.addEventListener("pointerdown", (event) => {
      const place = this.#place(box, event);
      if (place) this.seek(place.time);
    });
    for (const name of ["pointerleave", "blur"]) box.addEventListener(name, () => (this.tip.hidden = true));
    box.addEventListener("focus", () => box.matches(":focus-visible") && this.#describe(box));
    return box;
  }

  /** The items shown as timelines, read when first asked for; null where Python sent words only. */
  read() {
    this.timelines ??= this.shown.items.map((item) => (item.columns && !item.hidden ? new Timeline(item) : null));
    return this.timelines;
  }

  /** The moments at which something starts or ends, in order. */
  #moments() {
    const spans = this.read().flatMap((t) => (t ? [...t.ops, ...t.gaps.flat()] : []));
    const all = spans.flatMap((span) => [span.start, span.end]);
    return all.sort(least).filter((x, i) => !i || x - all[i - 1] > 1e-9 * this.until);
  }

  seek(time) {
    this.time = Math.max(0, Math.min(time, this.until));
    this.scrub.value = this.time;
    this.clock.textContent = `${brief(this.time)} of ${brief(this.until)}`;
    this.scrub.setAttribute("aria-valuetext", this.clock.textContent);
    this.shown.items.forEach((item, i) => this.#moveCursor(item, this.pictures.children[i]));
    this.#tell(false);
  }

  #moveCursor({ frame, num_devices }, box) {
    const cursor = box.querySelector(".pplab-cursor");
    if (!cursor) return;
    const x = (frame.left + this.time * frame.scale).toFixed(2);
    cursor.setAttribute("d", `M${x} ${frame.top - 3}v${frame.row * num_devices + 5}`);
  }

  step(direction) {
    const close = 1e-9 * this.until;
    const moments = this.#moments();
    const before = moments.filter((x) => x < this.time - close);
    const after = moments.filter((x) => x > this.time + close);
    this.#open();
    this.seek(direction > 0 ? (after[0] ?? this.until) : (before.pop() ?? 0));
  }

  #open() {
    if (!this.opened) this.now.open = this.opened = true; // once: whoever closes it wants it closed
  }

  toggle() {
    if (this.playing) return this.pause();
    this.#open();
    if (this.time >= this.until) this.seek(0);
    this.playButton.textContent = "⏸ pause";
    const moments = this.#moments().length;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.playing = setInterval(() => this.#advance(() => this.step(1)), 1000);
      return undefined;
    }
    const speed = this.until / Math.max(8000, Math.min(400 * moments, 30000)); // of time, a millisecond
    let last = performance.now();
    this.playing = setInterval(() => {
      const now = performance.now();
      this.#advance(() => this.seek(this.time + speed * (now - last)));
      last = now;
    }, 33);
    return undefined;
  }

  #advance(move) {
    if (!this.root.isConnected) return this.pause();
    move();
    return this.time >= this.until ? this.pause() : undefined;
  }

  pause() {
    clearInterval(this.playing);
    this.playing = 0;
    this.playButton.textContent = "▶ play";
  }

  reset() {
    this.pause();
    this.seek(0);
    this.onReset();
  }

  #key(event) {
    const modified = event.ctrlKey || event.metaKey || event.altKey;
    const free = !modified && !event.target.closest(".pplab-scroll");
    if (event.key === "Escape" && this.copyMenu.open) this.#closeCopies();
    const box = event.target.closest(".pplab-picture");
    const device = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const keys = { ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1) };
    Object.assign(keys, { Home: () => this.seek(0), End: () => this.seek(this.until) });
    if (!event.target.closest("button, summary, a, input[type=checkbox]")) keys[" "] = () => this.toggle();
    if (box && device) keys[event.key] = () => (this.device += device);
    if (!free || !keys[event.key] || !this.until) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
    if (box) this.#describe(box);
  }

  /** The device and time under the mouse, undefined outside the rows. */
  #place(box, event) {
    const index = [...this.pictures.children].indexOf(box);
    const svg = box.querySelector("svg");
    if (!svg || !this.read()[index]) return undefined;
    const { left, top, row, scale, width } = this.shown.items[index].frame;
    const bounds = svg.getBoundingClientRect();
    const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top].map((z) => (z * width) / bounds.width);
    const [time, line] = [(x - left) / scale, (y - top) / row];
    const device = Math.floor(line);
    const inside = device >= 0 && device < this.shown.items[index].num_devices && time >= 0 && time <= this.until;
    return inside ? { t: this.read()[index], device, time, lower: line - device > 0.5 } : undefined;
  }

  #point(place, event) {
    this.tip.hidden = !place;
    if (!place) return;
    const { does, gap } = place.t.at(place.device, place.time);
    const op = does.find((each) => each.half === Number(place.lower)) ?? does[0];
    this.#say(op ? [op] : [], gap, place.device, event.clientX, event.clientY);
  }

  /** Say at the clock what the chosen device does: the keyboard's way to a tooltip. */
  #describe(box) {
    const index = [...this.pictures.children].indexOf(box);
    const t = this.read()[index];
    if (!t) return;
    this.device = Math.max(0, Math.min(this.device, t.rows.length - 1));
    const { does, gap } = t.at(this.device, this.time);
    const bounds = box.querySelector("svg").getBoundingClientRect();
    const zoom = bounds.width / t.frame.width;
    const x = bounds.left + (t.frame.left + this.time * t.frame.scale) * zoom;
    this.#say(does, gap, this.device, x, bounds.top + (t.frame.top + (this.device + 0.5) * t.frame.row) * zoom);
    this.voice.textContent = this.tip.textContent;
  }

  #say(ops, gap, device, x, y) {
    const { kinds, reasons } = this.shown.words;
    const texts = ops.map((op) => opText(op, kinds));
    this.tip.textContent = texts.join("; ") || (gap ? gapText(gap, reasons) : `device ${device} is done`);
    this.tip.hidden = false;
    const bounds = this.root.getBoundingClientRect();
    const left = Math.min(x - bounds.left + 12, bounds.width - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${y - bounds.top + 18}px`;
  }

  /** Fill the table where it is open and something has changed. */
  #tell(fresh) {
    if (!this.now.open || !this.shown) return;
    const shown = this.read().filter(Boolean);
    const many = Math.max(0, ...shown.map((t) => t.rows.length));
    const cells = Array.from({ length: many }, (_, device) => shown.flatMap((t) => this.#cells(t, device)));
    const key = JSON.stringify([shown.map((t) => t.name), cells]);
    if (key === this.told && !fresh) return;
    this.told = key;
    const parts = ["does", "holds", "waits for"];
    const does = shown.some((t) => t.stored.pairs.length) ? 24 : 15;
    const shares = shown.flatMap(() => [does, 30, 63 - does].map((share) => `${share / shown.length}%`));
    const widths = ["66px", ...shares].map((width) => make("col", { style: `width:${width}` }));
    this.table.style.minWidth = `${280 * shown.length}px`;
    const head = make("tr", {}, make("td"), ...shown.map((t) => make("th", { colspan: 3, scope: "colgroup" }, t.name)));
    const heads = ["device", ...shown.flatMap(() => parts)].map((text) => make("th", { scope: "col" }, text));
    const lines = cells.map((row, d) => make("tr", {}, make("th", { scope: "row" }, d), ...row.map(tableCell)));
    this.table.replaceChildren(make("colgroup", {}, ...widths), head, make("tr", {}, ...heads), ...lines);
  }

  #cells(t, device) {
    if (device >= t.rows.length) return [{ text: "" }, { text: "" }, { text: "" }];
    const { does, holds, gap } = t.at(device, this.time);
    const idle = gap ? `${gap.waitingFor ?? "–"}: ${reasonText(gap, this.shown.words.reasons)}` : "";
    const run = does.map((op) => op.text).join(" + ");
    const first = { text: run || (gap ? "idle" : "done"), kind: does[0]?.kind };
    return [first, { text: holdsText(holds, t.manyStages) }, { text: idle }];
  }

  #fillCopies() {
    if (!this.copyMenu.open || !this.shown) return;
    const what = this.link ? [["link", this.link]] : [];
    if (this.shown.code) what.push(["code", () => this.shown.code]);
    this.read().forEach((t, i) => {
      if (!t) return;
      what.push([`${t.name} as CSV`, () => t.csv()], [`${t.name} as JSON`, () => JSON.stringify(t.stored)]);
      what.push([`${t.name} as SVG`, () => this.pictureText(i)]);
    });
    const button = ([label, text]) =>
      make("button", { type: "button", onclick: () => this.#copy(label, text()) }, label);
    this.copies.replaceChildren(...what.map(button));
  }

  #closeCopies() {
    this.copyMenu.open = false;
    this.copyMenu.querySelector("summary").focus();
  }

  /** A picture's SVG without the clock. */
  pictureText(index) {
    const svg = this.pictures.children[index].querySelector("svg").cloneNode(true);
    svg.querySelector(".pplab-cursor").remove();
    return new XMLSerializer().serializeToString(svg);
  }

  async #copy(label, text) {
    await copy(text, this.root);
    this.#closeCopies();
    const [bounds, here] = [this.root, this.copyMenu].map((element) => element.getBoundingClientRect());
    this.voice.textContent = this.tip.textContent = `copied ${label}`;
    this.tip.hidden = false;
    Object.assign(this.tip.style, { left: `${here.left - bounds.left}px`, top: `${here.bottom - bounds.top + 4}px` });
    setTimeout(() => (this.tip.hidden = true), 2500);
  }
}

/** In a notebook, through anywidget. */
function render({ model, el }) {
  const player = new Player(el.appendChild(make("div")), { onReset: () => model.send("reset") });
  const show = () => player.show(model.get("shown"));
  model.on("change:shown", show);
  show();
  return () => {
    player.pause();
    model.off("change:shown", show);
  };
}

export default { render };
