// Without this script the page has tables; with it, charts that can be pointed at, enlarged and compared.
(async () => {
  document.documentElement.className = "scripted";
  const { config, panels } = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const views = new Map(), hidden = new Set(), tip = document.getElementById("tip"), coarse = matchMedia("(pointer: coarse)").matches;
  const options = { config, renderer: "svg", ast: true, actions: false, defaultStyle: false, logLevel: 1, tooltip: { disableDefaultStyle: true } };
  const boxes = all(".plot"), specOf = (box) => panels[box.dataset.panel], plots = boxes.filter((box) => specOf(box).layer);
  const made = (tag, ...parts) => { const element = document.createElement(tag); element.append(...parts); return element; };
  const set = (box, signals) => Object.entries(signals).reduce((view, [name, value]) => view?.signal(name, value), views.get(box))?.runAsync();
  const draw = async (box) => {
    const spec = specOf(box); // its parameters: names, hidden, x_ends, y_ends
    if (spec.layer) spec.params[1].value = [...hidden];
    if (coarse) delete spec.layer?.[0].params; // fingers scroll
    for (const part of spec.vconcat || []) part.width = Math.max(box.clientWidth - 100, 120);
    views.get(box)?.finalize();
    await vegaEmbed(box, spec, options).then(({ view }) => views.set(box, view), (error) => { box.textContent = `not drawn: ${error}`; });
  };
  const short = (value, digits = 4) => String(Number(value.toPrecision(digits)));
  const quiet = () => [tip, ...all(".guide")].forEach((shown) => { shown.hidden = true; });
  const tell = (box, event) => {
    quiet();
    const view = views.get(box), { data, params, usermeta } = specOf(box);
    if (!view || document.querySelector("#vg-tooltip-element.visible")) return;
    const [left, top] = ["left", "top"].map((side, i) => view.origin()[i] + view.padding()[side]), svg = box.getBoundingClientRect(), at = event.clientX - svg.left - left, up = event.clientY - svg.top - top;
    const x = view.scale("x"), y = view.scale("y"), height = (hit) => y(hit.one.y[hit.place]);
    if (at < -4 || up < 0 || at > view.signal("width") + 4 || up > view.signal("height")) return;
    const lines = data.values.filter((one) => ["line", "step"].includes(one.mark) && !hidden.has(one.series));
    const points = lines.flatMap((one) => one.x.map((value, place) => ({ one, place, away: Math.abs(x(value) - at) })));
    const known = points.filter((hit) => Number.isFinite(hit.away + (hit.one.y[hit.place] ?? NaN))).sort((a, b) => a.away - b.away);
    if (!known.length) return;
    const hits = [...new Map(known.filter((hit) => hit.away < known[0].away + 12).reverse().map((hit) => [hit.one, hit])).values()];
    const value = known[0].one.x[known[0].place], off = (hit) => Math.abs(height(hit) - up);
    tip.replaceChildren(made("b", `${usermeta.labels[0]} ${params[0].value.x[Math.round(value)] ?? short(value, 8)}`));
    for (const { one, place } of hits.sort((a, b) => off(a) - off(b)).slice(0, 16).sort((a, b) => height(a) - height(b))) {
      const interval = one.low[place] == null ? "" : ` (${short(one.low[place])} to ${short(one.high[place])})`, own = one.x[place];
      tip.append(made("div", made("i"), made("span", one.series), made("span", short(one.y[place]) + interval + (own === value ? "" : ` at ${short(own)}`))));
      tip.lastChild.firstChild.style.background = one.ink;
    }
    const guide = box.nextElementSibling, right = event.clientX + 14;
    [tip.hidden, guide.hidden, guide.style.left] = [false, false, `${left + x(value)}px`];
    tip.style.left = `${Math.max(4, right + tip.offsetWidth > innerWidth ? right - 28 - tip.offsetWidth : right)}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4))}px`;
  };
  const enlarge = (box) => {
    const view = views.get(box), [drawn] = view?.data("zoom_store") ?? []; // in the units of the axes
    const ends = Object.fromEntries((drawn?.fields ?? []).map(({ channel }, i) => [channel, [...drawn.values[i]].sort((a, b) => a - b)])), size = ([letter, [low, high]]) => Math.abs(view.scale(letter)(high) - view.scale(letter)(low));
    if (drawn && Object.entries(ends).every((one) => size(one) > 5)) set(box, { x_ends: ends.x, y_ends: ends.y, zoom_x: [0, 0], zoom_y: [0, 0] });
  };
  let held; // the plot in which a box is being drawn
  for (const box of plots) {
    box.onpointermove = (event) => (held ? quiet() : tell(box, event));
    box.onpointerdown = (event) => (event.pointerType === "mouse" ? (held = box) : tell(box, event));
    box.onpointerleave = (event) => (event.pointerType === "mouse" ? quiet() : null); // a finger is lifted to read
    box.ondblclick = () => set(box, Object.fromEntries(specOf(box).params.slice(2).map((one) => [one.name, one.value])));
  }
  for (const type of ["pointerdown", "scroll"]) addEventListener(type, quiet, true);
  addEventListener("pointerup", () => { if (held && !coarse) setTimeout(enlarge, 0, held); held = null; });
  for (const button of all(".chip")) button.onclick = ({ currentTarget: { dataset: { label } } }) => {
    if (label === undefined) hidden.clear(); else if (!hidden.delete(label)) hidden.add(label);
    for (const chip of all("[data-label]")) chip.ariaPressed = !hidden.has(chip.dataset.label);
    for (const box of plots) set(box, { hidden: [...hidden] });
  };
  for (const button of all("[data-log]")) button.onclick = () => {
    const letter = button.dataset.log, scale = button.ariaPressed === "true" ? "linear" : "log";
    button.ariaPressed = scale === "log";
    for (const box of all(".plot", button.closest("figure"))) {
      const { layer, params, usermeta } = specOf(box);
      for (const { encoding } of layer) if (encoding[letter]?.scale) encoding[letter].scale.type = scale;
      params[letter === "x" ? 2 : 3].value = usermeta.free[letter][scale];
      draw(box);
    }
  };
  for (const button of all(".sortable th button")) button.onclick = () => {
    const head = button.parentElement, { tBodies: [body] } = head.closest("table"), sign = head.ariaSort === "ascending" ? -1 : 1;
    const key = (row) => row.cells[head.cellIndex].textContent;
    for (const other of head.parentElement.cells) other.ariaSort = other !== head ? null : sign > 0 ? "ascending" : "descending";
    const number = (row) => Number(key(row).replace("−", "-").replace("∞", "Infinity") || NaN), none = (row) => isNaN(number(row));
    body.append(...[...body.rows].sort((a, b) => none(a) - none(b) || sign * (number(a) - number(b)) || sign * key(a).localeCompare(key(b))));
  };
  const selects = all(".explorer select"), [explorer] = all(".explorer .plot");
  for (const select of selects) select.onchange = () => {
    const { usermeta, vconcat: [top, strip] } = specOf(explorer), chosen = (key, place) => usermeta[key][selects[place].value];
    [top.encoding.x, top.encoding.y, top.layer[0].encoding.fill, strip.encoding.x] = ["x", "y", "fill", "strip"].map(chosen);
    draw(explorer);
  };
  for (const shown of all("details.numbers")) shown.open = false; // a reader without this script has them open
  for (const box of boxes) await draw(box);
  document.body.dataset.drawn = performance.now();
})();
