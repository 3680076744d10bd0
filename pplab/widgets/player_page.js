// In a page without a kernel: sliders over sizes that were computed beforehand. Stands behind player.js, as one module.

/** The player with its sliders, of what the script in the element holds: JSON, packed by gzip, in base64. */
async function mountPage(root) {
  const bytes = Uint8Array.from(atob(root.querySelector("script").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const page = JSON.parse(await new Response(stream).text());
  const places = page.sizes.map(({ values, first }) => values.indexOf(first));
  const own = `page${[...document.querySelectorAll(".pplab-page")].indexOf(root)}x`;
  const hidden = new Set();
  const numbers = scroll();
  const sizes = make("div", { class: "pplab-sizes", role: "group", "aria-label": "sizes" });
  const value = (i) => page.sizes[i].values[places[i]];
  const link = () => {
    const chosen = [["player", page.name], ...page.sizes.map(({ key }, i) => [key, value(i)])];
    chosen.push(["time", short(player.time)], ...[...hidden].map((place) => ["without", place]));
    return `${location.href.split("#")[0]}#${new URLSearchParams(chosen)}`;
  };
  const update = () => {
    const shown = page.points[page.sizes.map((_, i) => value(i)).join()];
    const items = shown.items.map((place, i) => {
      const html = page.items[place].html.replaceAll("PICTURE", `${own}${i}`); // no two in the document share a name
      return { ...page.items[place], html, hidden: hidden.has(i) };
    });
    player.show({ ...shown, items, words: page.words });
    numbers.innerHTML = shown.numbers;
    for (const input of sizes.querySelectorAll("input[type=range]")) {
      input.value = places[input.dataset.place];
      input.nextSibling.textContent = value(input.dataset.place);
      input.setAttribute("aria-valuetext", value(input.dataset.place));
    }
    for (const input of sizes.querySelectorAll("input[type=checkbox]")) {
      input.checked = !hidden.has(Number(input.value));
    }
  };
  const follow = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (wanted.get("player") !== page.name) return;
    page.sizes.forEach(({ key, values }, i) => {
      const place = values.indexOf(Number(wanted.get(key)));
      if (wanted.has(key) && place >= 0) places[i] = place;
    });
    hidden.clear();
    wanted.getAll("without").forEach((place) => hidden.add(Number(place)));
    player.time = Number(wanted.get("time")) || 0;
    root.scrollIntoView();
  };
  const reset = () => {
    page.sizes.forEach(({ values, first }, i) => (places[i] = values.indexOf(first)));
    hidden.clear();
    update();
  };
  page.sizes.forEach(({ label, values }, i) => {
    const oninput = (event) => {
      places[i] = Number(event.target.value);
      update();
    };
    const input = make("input", { type: "range", min: 0, max: values.length - 1, step: 1, "data-place": i, oninput });
    sizes.append(make("label", {}, make("span", {}, label), input, make("output")));
  });
  if (page.names.length > 1) {
    const onchange = ({ target }) => {
      if (target.checked) hidden.delete(Number(target.value));
      else hidden.add(Number(target.value));
      update();
    };
    const box = (name, i) => make("label", {}, make("input", { type: "checkbox", value: i, onchange }), name);
    const boxes = page.names.map(box);
    sizes.append(make("fieldset", {}, make("legend", {}, "schedules"), ...boxes));
  }
  root.prepend(sizes);
  const player = new Player(root.appendChild(make("div")), { onReset: reset, link });
  root.append(numbers);
  follow();
  update();
  addEventListener("hashchange", () => {
    follow();
    update();
  });
}

for (const root of document.querySelectorAll(".pplab-page:not([data-live])")) {
  root.dataset.live = "";
  mountPage(root);
}
