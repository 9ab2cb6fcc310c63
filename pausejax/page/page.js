// Without this script the page has tables; with it, charts that can be pointed at, zoomed and compared.
(async () => {
  const { config, panels } = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const views = new Map(), hidden = new Set(), tip = document.getElementById("tip"), coarse = matchMedia("(pointer: coarse)").matches;
  const options = { config, renderer: "svg", actions: false, ast: true, defaultStyle: false, logLevel: vega.Error, tooltip: { disableDefaultStyle: true } };
  const short = (value) => (value === null ? "–" : String(Number(value.toPrecision(4))));
  const layers = (spec) => (spec.layer || []).flatMap((layer) => [layer, ...layers(layer)]);
  const set = (box, signals) => { const view = views.get(box); if (view) { for (const name in signals) view.signal(name, signals[name]); view.runAsync(); } };
  const ends = (box) => Object.fromEntries(panels[box.dataset.panel].params.filter((one) => one.name.endsWith("_ends")).map((one) => [one.name, one.value]));
  const draw = async (box) => {
    const spec = panels[box.dataset.panel];
    if (coarse && spec.layer) for (const layer of layers(spec)) delete layer.params; // fingers scroll
    if (spec.vconcat) for (const part of spec.vconcat) part.width = Math.max(box.clientWidth - 100, 120);
    try {
      views.get(box)?.finalize();
      views.set(box, (await vegaEmbed(box, spec, options)).view);
      if (hidden.size && spec.layer) set(box, { hidden: [...hidden] });
    } catch (error) { box.textContent = `This chart can't be drawn: ${error.message}`; }
  };

  // ------------------------------------------------------- pointing and zooming
  const near = (box, event) => {
    const view = views.get(box), spec = panels[box.dataset.panel], svg = box.querySelector("svg")?.getBoundingClientRect();
    if (!view || !svg || !spec.data?.values || document.querySelector("#vg-tooltip-element.visible")) return null;
    const x = view.scale("x"), y = view.scale("y"), [left, top] = view.origin(), at = event.clientX - svg.left - left, up = event.clientY - svg.top - top;
    if (at < -4 || up < 0 || at > view.signal("width") + 4 || up > view.signal("height")) return null;
    const found = spec.data.values.filter((one) => (one.mark === "line" || one.mark === "step") && !hidden.has(one.series)).map((one) => {
      let place = -1, away = Infinity;
      one.x.forEach((value, i) => { const off = value === null || one.y[i] === null ? Infinity : Math.abs(x(value) - at); if (off < away) [away, place] = [off, i]; });
      return { one, place, away, off: Math.abs(y(one.y[place]) - up) };
    }).filter((hit) => hit.place >= 0);
    const least = Math.min(...found.map((hit) => hit.away)), kept = found.filter((hit) => hit.away < least + 12).sort((a, b) => a.off - b.off).slice(0, 16);
    return kept.length ? { kept: kept.sort((a, b) => y(a.one.y[a.place]) - y(b.one.y[b.place])), at: kept.reduce((a, b) => (b.away < a.away ? b : a)), x, left } : null;
  };
  const quiet = () => { tip.hidden = true; for (const guide of all(".guide")) guide.hidden = true; };
  const tell = (box, event) => {
    quiet();
    const found = near(box, event), meta = panels[box.dataset.panel].usermeta;
    if (!found) return;
    const value = found.at.one.x[found.at.place], names = panels[box.dataset.panel].params[0].value.x, line = (tag, ...parts) => { const made = document.createElement(tag); made.append(...parts); return made; };
    tip.replaceChildren(line("b", `${meta.labels[0]} ${names.length ? names[Math.round(value)] : short(value)}`), ...found.kept.map(({ one, place }) => {
      const swatch = line("i"), interval = one.low.length && one.low[place] !== null ? ` (${short(one.low[place])} to ${short(one.high[place])})` : "";
      swatch.style.background = one.ink;
      return line("div", swatch, line("span", one.series), line("span", short(one.y[place]) + interval));
    }));
    tip.hidden = false;
    const guide = box.nextElementSibling, across = event.clientX + 14, down = event.clientY + 14;
    guide.hidden = false;
    guide.style.left = `${found.left + found.x(value)}px`;
    tip.style.left = `${Math.max(4, across + tip.offsetWidth > innerWidth ? event.clientX - tip.offsetWidth - 14 : across)}px`;
    tip.style.top = `${Math.max(4, Math.min(down, innerHeight - tip.offsetHeight - 4))}px`;
  };
  const zoom = (box) => {
    const view = views.get(box), spans = ["x", "y"].map((letter) => { try { return view.signal(`zoom_${letter}`); } catch { return null; } });
    if (!spans.every((span) => span && Math.abs(span[1] - span[0]) > 5)) return;
    const inverted = (letter, span) => span.map((pixel) => view.scale(letter).invert(pixel)).sort((a, b) => a - b);
    set(box, { x_ends: inverted("x", spans[0]), y_ends: inverted("y", spans[1]), zoom_x: [0, 0], zoom_y: [0, 0] });
  };
  let pressed = null;
  const boxes = all(".plot");
  for (const box of boxes.filter((box) => panels[box.dataset.panel].layer)) {
    box.addEventListener("pointermove", (event) => (pressed ? quiet() : tell(box, event)));
    box.addEventListener("pointerdown", (event) => { if (coarse) tell(box, event); else pressed = box; });
    box.addEventListener("pointerleave", quiet);
    box.addEventListener("dblclick", () => set(box, ends(box)));
  }
  addEventListener("pointerup", () => { const box = pressed; pressed = null; if (box) setTimeout(() => zoom(box)); });
  addEventListener("pointerdown", (event) => { if (!event.target.closest?.(".plot")) quiet(); });

  // ------------------------------------------------------------------ buttons
  const paint = () => { for (const chip of chips) chip.setAttribute("aria-pressed", !hidden.has(chip.dataset.label)); for (const box of boxes) if (panels[box.dataset.panel].layer) set(box, { hidden: [...hidden] }); };
  const chips = all("[data-label]");
  for (const chip of chips) chip.onclick = () => { if (!hidden.delete(chip.dataset.label)) hidden.add(chip.dataset.label); paint(); };
  for (const button of all("#all")) button.onclick = () => { hidden.clear(); paint(); };
  for (const figure of all("figure")) for (const [place, letter] of ["x", "y"].entries()) {
    const own = all(".plot", figure), specs = own.map((box) => panels[box.dataset.panel]), button = document.createElement("button");
    if (!specs.length || !specs.every((spec) => spec.usermeta?.free?.[letter])) continue;
    let log = specs[0].layer[0].encoding[letter].scale.type === "log";
    const show = () => button.setAttribute("aria-pressed", log);
    button.type = "button"; button.textContent = `${letter}: log`; show();
    button.onclick = () => {
      log = !log; show();
      for (const spec of specs) { for (const layer of layers(spec)) if (layer.encoding?.[letter]?.scale) layer.encoding[letter].scale.type = log ? "log" : "linear"; spec.params.find((one) => one.name === `${letter}_ends`).value = spec.usermeta.free[letter][log ? "log" : "linear"]; }
      own.forEach(draw);
    };
    figure.querySelector(".tools").append(button);
  }
  for (const table of all("table.sortable")) all("thead th", table).forEach((head, column) => {
    const button = document.createElement("button"), key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent, number = (text) => (text === "" || isNaN(text) ? null : Number(text));
    button.type = "button"; button.append(...head.childNodes); head.append(button);
    button.onclick = () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1, body = table.tBodies[0];
      for (const other of all("th[aria-sort]", table)) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const order = (a, b) => { const [i, j] = [number(key(a)), number(key(b))]; return i !== null && j !== null ? sign * (i - j) : i === null && j === null ? sign * key(a).localeCompare(key(b)) : i === null ? 1 : -1; };
      body.append(...[...body.rows].sort(order));
    };
  });
  for (const figure of all(".explorer")) {
    const box = figure.querySelector(".plot"), spec = panels[box.dataset.panel], selects = all("select", figure);
    let width = 0;
    const explore = () => {
      const [x, y, fill, strip] = selects.map((select) => Number(select.value)), meta = spec.usermeta, [top, beneath] = spec.vconcat;
      Object.assign(top.encoding, { x: meta.x[x], y: meta.y[y] }); top.layer[0].encoding.fill = meta.fill[fill]; beneath.encoding.x = meta.strip[strip];
      width = box.clientWidth;
      return draw(box);
    };
    for (const select of selects) select.onchange = explore;
    addEventListener("resize", () => { if (box.clientWidth !== width) explore(); });
  }
  for (const shown of all("details.numbers")) shown.open = false;
  document.documentElement.classList.add("scripted");
  for (const box of boxes) await draw(box);
  document.body.dataset.drawn = performance.now();
})();
