// Without this script the page says and shows all the same; with it pictures can be asked.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set();
  const tip = document.getElementById("tip");
  const element = (name, attributes, parent) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    return parent.appendChild(made);
  };
  const named = (id) => document.getElementById(id);

  // ------------------------------------------------------------------ axes
  const across = (panel) => projection(panel.now.x, panel.box[0], panel.box[2]);
  const upward = (panel) => projection(panel.now.y, panel.box[3], panel.box[1]);

  // --------------------------------------------------------------- pictures
  const pictures = Object.entries(data.pictures).map(([id, found]) => {
    const svg = named(id);
    for (const panel of found.panels) {
      panel.now = { x: panel.x, y: panel.y };
      for (const trace of panel.traces) {
        trace.parts = [...trace.ids, ...(trace.band ? [trace.band] : [])].map(named).filter(Boolean);
        const line = named(trace.ids[0]);
        trace.path = line && line.querySelector(":scope > path");
        // A mark stands at one of the points, but not every point has one.
        const x = across(panel), y = upward(panel);
        trace.marks = (line ? [...line.querySelectorAll("use")] : []).map((node) => {
          const off = trace.x.map((v, i) => Math.hypot(x(v) - node.getAttribute("x"), y(trace.y[i]) - node.getAttribute("y")));
          return { node, at: nearest(off, 0) };
        });
        const band = trace.band && named(trace.band);
        trace.area = band && band.querySelector(":scope > path");
      }
    }
    return { id, svg, found };
  });
  const isNamed = (trace) => trace.label && !trace.level;
  const visible = (panel) => panel.traces.filter((trace) => !hidden.has(trace.label));

  const repaint = [];
  const paint = () => {
    for (const { found } of pictures) {
      for (const panel of found.panels)
        for (const trace of panel.traces)
          for (const part of trace.parts) part.classList.toggle("gone", hidden.has(trace.label));
      for (const [label, ...parts] of found.legend)
        for (const part of parts.map(named)) if (part) part.classList.toggle("faint", hidden.has(label));
    }
    repaint.forEach((again) => again());
  };

  // Draws the data of a panel anew on the axes that it has now.
  const redraw = (panel, svg) => {
    const x = across(panel), y = upward(panel), asDrawn = panel.now.x === panel.x && panel.now.y === panel.y;
    const keep = (node, key, value) => {
      if (!node) return;
      node.drawn = node.drawn || {};
      if (!(key in node.drawn)) node.drawn[key] = node.getAttribute(key);
      node.setAttribute(key, asDrawn ? node.drawn[key] : value);
    };
    const path = (xs, ys) => {
      let pen = "M", text = "";
      xs.forEach((v, i) => {
        const px = x(v), py = y(ys[i]);
        if (!Number.isFinite(px + py)) { pen = "M"; return; }
        text += `${pen}${px.toFixed(2)} ${py.toFixed(2)}`;
        pen = "L";
      });
      return text || "M0 0";
    };
    for (const trace of panel.traces) {
      const [left, , right] = panel.box, height = y(trace.y[0]);
      if (trace.level) {
        const ends = trace.x.map((share) => (left + share * (right - left)).toFixed(2));
        keep(trace.path, "d", Number.isFinite(height) ? `M${ends[0]} ${height.toFixed(2)}L${ends[1]} ${height.toFixed(2)}` : "M0 0");
        continue;
      }
      keep(trace.path, "d", path(trace.x, trace.y));
      for (const { node, at } of trace.marks) {
        const px = at < 0 ? NaN : x(trace.x[at]), py = at < 0 ? NaN : y(trace.y[at]), there = Number.isFinite(px + py);
        keep(node, "x", there ? px.toFixed(2) : "-99");
        keep(node, "y", there ? py.toFixed(2) : "-99");
      }
      if (trace.area && trace.low) {
        const floor = panel.now.y.scale === "log" ? panel.now.y.from : -Infinity;
        const rows = trace.x.map((v, i) => [v, trace.low[i], trace.high[i]]).filter((r) => r[1] !== null && r[2] !== null);
        const xs = rows.map((r) => r[0]), low = rows.map((r) => Math.max(r[1], floor)), high = rows.map((r) => Math.max(r[2], floor));
        keep(trace.area, "d", path([...xs, ...xs.slice().reverse()], [...low, ...high.reverse()]) + "Z");
      }
    }
    for (const letter of ["x", "y"]) ticks(panel, letter, svg);
  };

  const ticks = (panel, letter, svg) => {
    const group = named(panel[letter].id), [left, top, right, bottom] = panel.box;
    if (!group) return;
    const old = [...group.querySelectorAll(".tick")], own = group.querySelector(".own");
    if (own) own.remove();
    const changed = panel.now[letter] !== panel[letter];
    old.forEach((tick) => tick.classList.toggle("gone", changed));
    if (!changed) return;
    const place = letter === "x" ? across(panel) : upward(panel);
    const made = element("g", { class: "own" }, group);
    const labelled = old.some((tick) => tick.querySelector("text")), taken = [];
    // A label that would touch another one is left out; decades come first.
    const room = (at, size) => {
      const free = taken.every(([from, to]) => at + size < from || at - size > to);
      if (free) taken.push([at - size, at + size]);
      return labelled && free;
    };
    for (const value of ticksOf(panel.now[letter])) {
      const at = place(value);
      if (letter === "x") {
        element("line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom }, made);
        element("line", { x1: at, x2: at, y1: bottom, y2: bottom + 3.5 }, made);
        if (room(at > right - 6 ? at - 6 : at, 2.6 * brief(value).length)) element("text", { x: at, y: bottom + 12, "text-anchor": at > right - 6 ? "end" : "middle" }, made).textContent = brief(value);
      } else {
        element("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }, made);
        element("line", { x1: left - 3.5, x2: left, y1: at, y2: at }, made);
        if (room(at, 4)) element("text", { x: left - 5, y: at + 2.7, "text-anchor": "end" }, made).textContent = brief(value);
      }
    }
  };

  // The other scale of an axis: it holds what all panels that share the axis show.
  const other = (panels, letter, scale) => {
    const values = [];
    for (const panel of panels)
      for (const trace of visible(panel))
        for (const column of letter === "x" ? (trace.level ? [] : ["x"]) : ["y", ...(scale === "linear" ? ["low", "high"] : [])])
          for (const v of trace[column] || []) if (v !== null && (scale !== "log" || v > 0)) values.push(v);
    if (!values.length) return null;
    const f = transforms[scale];
    let low = f(values.reduce((a, b) => Math.min(a, b))), high = f(values.reduce((a, b) => Math.max(a, b)));
    if (low === high) { low -= 0.5; high += 0.5; }
    const margin = letter === "y" ? 0.04 * (high - low) : 0;
    const back = scale === "log" ? (v) => 10 ** v : (v) => v;
    return { ...panels[0][letter], scale, from: back(low - margin), to: back(high + margin) };
  };

  const switches = ({ svg, found }) => {
    const tools = svg.closest("figure").querySelector(".tools");
    for (const letter of ["y", "x"]) {
      // An inset without lines of its own follows along x alone.
      const moved = found.panels.filter((p) => p.traces.length && (letter === "x" || p.traces.some(isNamed)));
      if (!moved.length || !moved.every((p) => p.whole && p[letter].free)) continue;
      const target = moved[0][letter].scale === "linear" ? "log" : "linear";
      const positive = moved.every((p) => p.traces.every((t) => (t.level && letter === "x") || t[letter].some((v) => v > 0)));
      if (target === "log" && !positive) continue;
      const button = document.createElement("button");
      button.type = "button";
      const called = (scale) => `${letter}: ${scale === "linear" ? "linear" : "log"}`;
      button.textContent = called(target);
      button.title = `draw the ${letter === "x" ? "horizontal" : "vertical"} axis ${target === "log" ? "in decades" : "evenly"}`;
      button.setAttribute("aria-pressed", "false");
      const apply = (on) => {
        for (const panel of moved) {
          const sharing = moved.filter((p) => p[letter].shared === panel[letter].shared);
          panel.now[letter] = (on && other(sharing, letter, target)) || panel[letter];
        }
        found.panels.forEach((panel) => redraw(panel, svg));
        button.setAttribute("aria-pressed", String(on));
        button.textContent = called(on ? moved[0][letter].scale : target);
      };
      const isOn = () => button.getAttribute("aria-pressed") === "true";
      button.addEventListener("click", () => apply(!isOn()));
      repaint.push(() => isOn() && apply(true));
      tools.appendChild(button);
    }
  };

  // -------------------------------------------------------------- pointing
  const colourOf = (trace) => {
    const mark = trace.path || trace.parts.map((part) => part.querySelector("use, path")).find(Boolean);
    if (!mark) return "currentColor";
    const look = getComputedStyle(mark);
    return look.stroke !== "none" ? look.stroke : look.fill;
  };
  const row = (text, value, colour) => {
    const line = document.createElement("div");
    if (colour) {
      const swatch = line.appendChild(document.createElement("span"));
      swatch.className = "swatch";
      swatch.style.setProperty("--swatch", colour);
    }
    line.appendChild(document.createElement("span")).textContent = text;
    line.appendChild(document.createElement("span")).textContent = value;
    return line;
  };
  const say = (title, rows, clientX, clientY) => {
    tip.replaceChildren();
    tip.appendChild(document.createElement("b")).textContent = title;
    tip.append(...rows);
    tip.hidden = false;
    const size = tip.getBoundingClientRect();
    const right = clientX + 16 + size.width > innerWidth;
    tip.style.left = `${Math.max(4, right ? clientX - 16 - size.width : clientX + 16)}px`;
    tip.style.top = `${Math.max(4, Math.min(clientY + 12, innerHeight - size.height - 4))}px`;
  };
  const forget = (svg) => {
    tip.hidden = true;
    svg.querySelectorAll(".guide").forEach((guide) => guide.remove());
  };
  const inside = (panel, x, y) => x >= panel.box[0] && x <= panel.box[2] && y >= panel.box[1] && y <= panel.box[3];

  const point = ({ svg, found }, x, y, clientX, clientY) => {
    forget(svg);
    const panel = found.panels.findLast((p) => inside(p, x, y));
    if (!panel) return;
    if (panel.cells) return pointAtCell(panel, x, y, clientX, clientY);
    if (panel.dots) return pointAtDot(panel, x, y, clientX, clientY);
    const place = across(panel), up = upward(panel), near = [];
    for (const trace of visible(panel)) {
      if (!isNamed(trace)) continue;
      const at = nearest(trace.x.map((v, i) => (trace.y[i] === null ? NaN : place(v))), x);
      if (at >= 0) near.push({ trace, at, off: Math.abs(place(trace.x[at]) - x), pixel: place(trace.x[at]) });
    }
    if (!near.length) return;
    const closest = near.reduce((a, b) => (b.off < a.off ? b : a));
    const told = near.filter((one) => Math.abs(one.pixel - closest.pixel) < 4);
    told.sort((a, b) => up(a.trace.y[a.at]) - up(b.trace.y[b.at]));
    element("line", { class: "guide", x1: closest.pixel, x2: closest.pixel, y1: panel.box[1], y2: panel.box[3] }, svg);
    const rows = told.slice(0, 16).map(({ trace, at }) => {
      const around = trace.low && trace.low[at] !== null ? ` (${shown(trace.low[at])} to ${shown(trace.high[at])})` : "";
      return row(trace.label, shown(trace.y[at]) + around, colourOf(trace));
    });
    const where = [panel.title, panel.x.label || "at"].filter(Boolean).join(": ");
    say(`${where} ${shown(closest.trace.x[closest.at])}`, rows, clientX, clientY);
  };
  const pointAtCell = (panel, x, y, clientX, clientY) => {
    const within = (edges, project, at) => edges.findIndex((_, i) => i + 1 < edges.length && (project(edges[i]) - at) * (project(edges[i + 1]) - at) <= 0);
    const column = within(panel.cells.x, across(panel), x), line = within(panel.cells.y, upward(panel), y);
    if (column < 0 || line < 0) return;
    const names = [panel.cells.names[0][column], panel.cells.names[1][line]].filter(Boolean).join(", ");
    say(names || "cell", [row(panel.cells.label, shown(panel.cells.values[line][column]))], clientX, clientY);
  };
  const pointAtDot = (panel, x, y, clientX, clientY) => {
    const px = across(panel), py = upward(panel), [xs, ys] = panel.dots;
    const off = xs.map((v, i) => Math.hypot(px(v) - x, py(ys[i]) - y));
    const at = nearest(off, 0);
    if (at < 0 || off[at] > 8) return;
    say("point", [row(panel.x.label, shown(xs[at])), row(panel.y.label, shown(ys[at]))], clientX, clientY);
  };

  const listen = (picture) => {
    const { svg, found } = picture;
    const at = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const move = (event) => { const p = at(event); point(picture, p.x, p.y, event.clientX, event.clientY); };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
    svg.addEventListener("pointerleave", () => forget(svg));
    svg.addEventListener("blur", () => forget(svg));
    let step = 0;
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return forget(svg);
      const panel = found.panels.find((p) => visible(p).some(isNamed));
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!panel || !move) return;
      event.preventDefault();
      const trace = visible(panel).find(isNamed), count = trace.x.length;
      step = Math.max(0, Math.min(count - 1, step + move * Math.ceil(count / 40)));
      const x = across(panel)(trace.x[step]), y = (panel.box[1] + panel.box[3]) / 2;
      const screen = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
      point(picture, x, y, screen.x, screen.y);
    });
  };

  // ---------------------------------------------------------- lines to show
  const chips = [...document.querySelectorAll(".chip[data-label]")];
  for (const chip of chips) {
    const label = data.labels[chip.dataset.label];
    const trace = pictures.flatMap(({ found }) => found.panels.flatMap((p) => p.traces)).find((t) => t.label === label);
    if (trace) chip.querySelector(".swatch").style.setProperty("--swatch", colourOf(trace));
    chip.addEventListener("click", () => {
      if (!hidden.delete(label)) hidden.add(label);
      chip.setAttribute("aria-pressed", String(!hidden.has(label)));
      paint();
    });
  }
  const all = named("all");
  if (all) all.addEventListener("click", () => {
    hidden.clear();
    chips.forEach((chip) => chip.setAttribute("aria-pressed", "true"));
    paint();
  });

  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  pictures.forEach((picture) => { listen(picture); switches(picture); });
  if (pictures.length) named("controls").hidden = false;
})();
