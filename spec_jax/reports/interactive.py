"""Pictures that answer the reader's hand: HTML with its own script, for notebooks.

They need nothing but a page that runs scripts, so no extension of Jupyter, and load
nothing. Where scripts are not run, as in a preview, a sentence stands in their place.
"""

import json
import zlib
from collections.abc import Sequence

from spec_jax.experiments.trace import TraceRecord
from spec_jax.reports.drawing import FONT, LIGHT

WITHOUT_SCRIPTS = (
    "Here is something to move where scripts run: in Colab, or in Jupyter after "
    "this cell was run."
)
_STYLE = """
#ID{color-scheme:light;background:GROUND;color:INK;font:14px/1.5 FONT;
max-width:660px;padding:12px 16px;border:1px solid GRID;border-radius:6px}
#ID label{display:grid;grid-template-columns:auto minmax(5em,1fr) 5em;gap:8px;
align-items:center}
#ID .row{display:flex;flex-wrap:wrap;gap:8px 20px;align-items:center}
#ID .row>*{flex:1 1 240px;min-width:0}
#ID .row>button{flex:0 0 auto;font:inherit;padding:2px 12px}
#ID input{width:100%;min-width:0;margin:0}
#ID .words label{grid-template-columns:4em minmax(5em,1fr) 3em}
#ID output{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
#ID svg{display:block;width:100%;height:auto}
#ID text{font:12px FONT;fill:INK}
#ID p{margin:8px 0 0}
#ID .text{min-height:3em;margin:2px 0 8px;white-space:pre-wrap}
#ID .rejected{color:S2;text-decoration:line-through}
#ID .accepted{color:S3}
#ID .own{color:S1;font-weight:600;text-decoration:underline}
"""
_KIT = """
const NS = "http://www.w3.org/2000/svg";
const add = (to, tag, attributes = {}, text = null) => {
  const drawn = tag === "svg" || to.namespaceURI === NS;
  const made = drawn ? document.createElementNS(NS, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  if (text !== null) made.textContent = text;
  return to.appendChild(made);
};
const slider = (to, name, [min, max, step], value, say, changed) => {
  const label = add(to, "label");
  add(label, "span", {}, name);
  const input = add(label, "input", {type: "range", min, max, step, value});
  const said = add(label, "output", {}, say(value));
  input.addEventListener("input", () => {
    said.textContent = say(+input.value);
    changed(+input.value);
  });
  return (now) => { input.value = now; said.textContent = say(now); };
};
const root = document.getElementById("ID");
root.replaceChildren();
"""
_DRAWS = """
const {words, p} = DATA, weights = [...DATA.q], n = p.length;
let counts, kept, drawn;
const row = add(root, "div", {class: "row"});
const svg = add(row, "svg", {viewBox: "0 0 360 220", role: "img"});
const hands = add(row, "div", {class: "words"});
const buttons = add(root, "div", {class: "row"});
const said = add(root, "p", {class: "said"});
const law = () => {
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.map((w) => (sum ? w / sum : 1 / n));
};
const pick = (law) => {
  let left = Math.random() * law.reduce((a, b) => a + b, 0);
  for (let i = 0; i < n; i++) if ((left -= law[i]) < 0) return i;
  return law.findLastIndex((x) => x > 0);
};
const draw = (times) => {
  const q = law(), missing = p.map((x, i) => Math.max(x - q[i], 0));
  let last = "";
  for (let k = 0; k < times; k++) {
    const guess = pick(q), held = Math.random() * q[guess] < p[guess];
    const token = held ? guess : pick(missing);
    counts[token]++, drawn++, kept += held;
    last = `The draft guesses “${words[guess]}”: ` + (
      held ? "kept." : `not kept, the target says “${words[token]}”.`);
  }
  show(times === 1 ? last : "");
};
const show = (last = "") => {
  const q = law(), y = (v) => 190 - 300 * Math.min(v, 0.6);
  svg.replaceChildren();
  for (let v = 0; v < 0.61; v += 0.2) {
    add(svg, "line", {x1: 30, x2: 360, y1: y(v), y2: y(v), stroke: "GRID"});
    add(svg, "text", {x: 24, y: y(v) + 4, "text-anchor": "end"}, v.toFixed(1));
  }
  p.forEach((big, i) => {
    const x = 38 + (i * 322) / n, wide = 130 / n, both = Math.min(big, q[i]);
    const bar = (x, low, high, fill) => add(svg, "rect",
      {x, y: y(high), width: wide, height: y(low) - y(high), fill});
    bar(x, 0, q[i], "#bec1c5");
    bar(x + wide + 2, 0, both, "S3");
    bar(x + wide + 2, both, big, "S1");
    const cy = y(counts[i] / drawn), cx = x + 1.5 * wide + 2;
    if (drawn) add(svg, "circle",
      {cx, cy, r: 5, fill: "GROUND", stroke: "INK", "stroke-width": 1.8});
    add(svg, "text", {x: x + wide, y: 208, "text-anchor": "middle"}, words[i]);
  });
  const alpha = p.reduce((sum, x, i) => sum + Math.min(x, q[i]), 0);
  said.textContent = `α = ${alpha.toFixed(2)}. ` + (drawn ? `Of ${
    drawn.toLocaleString("en")} draws ${(kept / drawn).toFixed(2)} kept. ` : "") + last;
};
const clear = () => { counts = p.map(() => 0); kept = drawn = 0; show(); };
const q = law();
add(hands, "div", {}, "What the draft trusts:");
words.forEach((word, i) => slider(hands, `“${word}”`, [0, 1, 0.05], weights[i],
  (w) => w.toFixed(2), (w) => { weights[i] = w; clear(); }));
for (const times of [1, 100, 10000]) {
  const name = times === 1 ? "Draw one" : `Draw ${times.toLocaleString("en")}`;
  add(buttons, "button", {type: "button"}, name)
    .addEventListener("click", () => draw(times));
}
clear();
"""
_RACE = """
const most = Math.max(...DATA.map((way) => way.ms)), seconds = 6;
let playing = null;
const places = DATA.map((way) => [add(root, "div"), add(root, "div", {class: "text"})]);
const show = (now) => DATA.forEach((way, i) => {
  const [head, text] = places[i], each = way.ms / way.runs.length;
  const done = Math.min(way.runs.length, Math.floor(now / each + 1e-6));
  let tokens = 0;
  text.replaceChildren();
  for (const [kind, words, count] of way.runs.slice(0, done).flat()) {
    const word = words.trimStart();
    if (tokens && word !== words) text.append(" "); // not underlined
    add(text, "span", {class: kind}, word);
    if (kind !== "rejected") tokens += count;
  }
  head.replaceChildren();
  add(head, "strong", {}, way.name);
  const few = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
  const runs = `${few(done, "run")} of the target`;
  const end = done === way.runs.length ? `, done in ${way.ms.toFixed(0)} ms` : "";
  add(head, "span", {}, `: ${few(tokens, "token")} in ${runs}${end}`);
});
const stop = () => { clearInterval(playing); playing = null; };
const row = add(root, "div", {class: "row"});
const button = add(row, "button", {type: "button"}, "Play slowly");
const set = slider(row, "time", [0, most, most / 400], most,
  (ms) => `${ms.toFixed(0)} ms`, (ms) => { stop(); show(ms); });
button.addEventListener("click", () => {
  stop();
  const begin = performance.now();
  playing = setInterval(() => {
    const now = Math.min(most, (most * (performance.now() - begin)) / (1000 * seconds));
    set(now), show(now);
    if (now === most) stop();
  }, 40);
});
show(most);
"""
_SPEEDS = """
let {alpha, c} = DATA;
const most = 16, speed = (gamma) => (alpha < 1
  ? (1 - alpha ** (gamma + 1)) / (1 - alpha) : gamma + 1) / (gamma * c + 1);
const hands = add(root, "div", {class: "row"});
const svg = add(root, "svg", {viewBox: "0 0 620 240", role: "img"});
const said = add(root, "p", {class: "said"});
const show = () => {
  const all = Array.from({length: most + 1}, (_, gamma) => speed(gamma));
  const top = Math.max(...all), best = all.indexOf(top);
  const high = Math.max(2, Math.ceil(top));
  const x = (gamma) => 30 + (gamma * 570) / most, y = (v) => 200 - (v * 185) / high;
  svg.replaceChildren();
  for (let v = 0; v <= high; v += Math.ceil(high / 6)) {
    const stroke = v === 1 ? "INK" : "GRID";
    add(svg, "line", {x1: 30, x2: 610, y1: y(v), y2: y(v), stroke});
    add(svg, "text", {x: 22, y: y(v) + 4, "text-anchor": "end"}, v);
  }
  for (let gamma = 0; gamma <= most; gamma += 2)
    add(svg, "text", {x: x(gamma), y: 217, "text-anchor": "middle"}, gamma);
  add(svg, "text", {x: 315, y: 235, "text-anchor": "middle"}, "γ");
  const points = all.map((v, gamma) => `${x(gamma)},${y(v)}`).join(" ");
  add(svg, "polyline", {points, fill: "none", stroke: "S1", "stroke-width": 2});
  add(svg, "circle", {cx: x(best), cy: y(top), r: 6, fill: "S1"});
  said.textContent = best ? `Best γ: ${best}, ${top.toFixed(2)} times plain decoding.`
    : "No γ pays: a guess costs more than it brings.";
};
slider(hands, "α, kept", [0, 1, 0.01], alpha, (v) => v.toFixed(2),
  (v) => { alpha = v; show(); });
slider(hands, "c, cost", [0, 0.5, 0.01], c, (v) => v.toFixed(2),
  (v) => { c = v; show(); });
show();
"""


def draws(p: Sequence[float], q: Sequence[float], words: Sequence[str]) -> str:
    """A target's and a draft's probabilities of a token, and draws by the token rule.

    Args:
      p: [vocab] the target's.
      q: [vocab] the draft's, which the reader changes; scaled to sum to 1.
      words: [vocab] the tokens.
    """
    given = {"p": [*map(float, p)], "q": [*map(float, q)], "words": [*words]}
    return _html(_DRAWS, given)


def race(traces: Sequence[TraceRecord]) -> str:
    """Ways to decode one text, each beginning at the same time, slowly.

    Args:
      traces: of one text; runs are taken to last equally long.
    """
    ways = []
    for trace in traces:
        runs = [
            [[_kind(p.status), p.text, p.tokens] for p in step.parts]
            for step in trace.steps
        ]
        name = f"speculative, γ = {trace.gamma}" if trace.gamma else "plain"
        ways.append({"name": name, "ms": 1e3 * trace.seconds, "runs": runs})
    return _html(_RACE, ways)


def speeds(alpha: float, c: float) -> str:
    """Theorem 3.8's speed by gamma.

    Args:
      alpha: to begin with.
      c: to begin with.
    """
    return _html(_SPEEDS, {"alpha": alpha, "c": c})


def _kind(status: str) -> str:
    return status if status in ("accepted", "rejected") else "own"


def _html(script: str, data) -> str:
    """A box and its script; two of one page have different names."""
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    name = f"spec-jax-{zlib.crc32((script + text).encode()):08x}"

    def with_names(source):
        for role, color in (*LIGHT.items(), ("FONT", FONT)):
            source = source.replace(role.upper(), color)
        return source.replace("ID", name).replace("DATA", text)

    return (
        f'<style>{with_names(_STYLE)}</style><div id="{name}">{WITHOUT_SCRIPTS}</div>'
        f"<script>(() => {{{with_names(_KIT + script)}}})();</script>"
    )
