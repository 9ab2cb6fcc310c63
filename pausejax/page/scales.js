"use strict";
// Axes: where values lie, where ticks stand, and how numbers are written.
const transforms = {
  linear: (v) => v,
  log: (v) => (v > 0 ? Math.log10(v) : NaN),
  symlog: (v, linear) => {
    const adjusted = 1 / 0.9;
    if (Math.abs(v) <= linear) return v * adjusted;
    return Math.sign(v) * linear * (adjusted + Math.log10(Math.abs(v) / linear));
  },
};
// Where a value lies on an axis that reaches from pixel a to pixel b; null and what has no logarithm: NaN.
const projection = (axis, a, b) => {
  const f = transforms[axis.scale];
  if (!f) return () => NaN;
  const low = f(axis.from, axis.linear), high = f(axis.to, axis.linear);
  return (v) => (v === null ? NaN : a + ((f(v, axis.linear) - low) / (high - low)) * (b - a));
};

const ticksOf = (axis) => {
  if (axis.scale === "log") {
    const first = Math.ceil(Math.log10(axis.from) - 1e-9), last = Math.floor(Math.log10(axis.to) + 1e-9);
    if (last - first >= 1) {
      const step = Math.ceil((last - first + 1) / 6);
      const decades = Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, i) => 10 ** (first + i * step));
      if (last - first > 2) return decades;
      const between = [first - 1, ...Array.from({ length: last - first + 1 }, (_, i) => first + i)];
      const more = between.flatMap((n) => [2 * 10 ** n, 5 * 10 ** n]).filter((v) => v >= axis.from && v <= axis.to);
      return [...decades, ...more];
    }
  }
  const reach = axis.to - axis.from, rough = reach / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
  const first = Math.ceil(axis.from / step);
  return Array.from({ length: Math.floor(axis.to / step) - first + 1 }, (_, i) => (first + i) * step);
};
const brief = (v) => {
  const size = Math.abs(v);
  if (size && (size < 1e-3 || size >= 1e6)) return v.toExponential(0).replace("e+", "e");
  return size >= 1e4 ? `${+(v / 1000).toPrecision(3)}k` : String(+v.toPrecision(4));
};
const shown = (v) => (v === null || v === undefined ? "–" : String(+v.toPrecision(4)));
// The place of the number that is nearest to another; -1 where there is none.
const nearest = (pixels, at) => {
  let best = -1;
  pixels.forEach((p, i) => { if (Number.isFinite(p) && (best < 0 || Math.abs(p - at) < Math.abs(pixels[best] - at))) best = i; });
  return best;
};
