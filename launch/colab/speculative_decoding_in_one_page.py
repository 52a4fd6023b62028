# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
#   language_info:
#     name: python
# ---

# %% [markdown]
# # Speculative decoding in one page
#
# A large language model writes one token at a time, and to write one it reads all its weights. A small model is quick, but wrong now and then. **Speculative decoding** lets the small one, the *draft*, guess γ tokens ahead; the large one, the *target*, judges all guesses in **one** run, keeps those that hold, and adds a token of its own. The output follows the large model's distribution exactly, and at temperature 0 it is the same text.
#
# This page shows why that is exact, what it looks like on real text, and when it is faster. Everything runs on a CPU, a GPU or a TPU. Three boxes answer at once to a mouse; cells with a form can be changed and run again.
#
# Paper: Leviathan, Kalman and Matias 2023, [Fast Inference from Transformers via Speculative Decoding](https://arxiv.org/abs/2211.17192).

# %% [markdown]
# ## Install
#
# Where spec_jax can be imported this does nothing. In a checkout it installs that; elsewhere, as in Colab, give the address of the repository, for example `git+https://github.com/OWNER/spec_jax`, or a wheel.

# %% cellView="form"
# @title Install
import importlib.util
import pathlib
import subprocess
import sys

SOURCE = ""  # @param {type:"string"}

if importlib.util.find_spec("spec_jax") is None:
    folders = [pathlib.Path.cwd(), *pathlib.Path.cwd().parents]
    checkout = next((f for f in folders if (f / "spec_jax" / "base.py").exists()), None)
    source = SOURCE or checkout
    if source is None:
        raise SystemExit("want the repository's address in SOURCE, got none")
    extras = "report"
    named = (
        f"spec_jax[{extras}] @ {source}" if "://" in SOURCE else f"{source}[{extras}]"
    )
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", named], check=True)

# %%
import functools
import os

os.environ.setdefault("PJRT_NPROC", "1")  # on a CPU, one text is fastest on one thread

import jax
import jax.numpy as jnp
import numpy as np
from IPython.display import HTML, Image, Markdown, display

from spec_jax import Proposal, TokenRule, generate, verify
from spec_jax.cli.decoding import Row, load_both
from spec_jax.cli.trace import TraceSettings, record, watch
from spec_jax.core import theory
from spec_jax.experiments.trace import PartTimes
from spec_jax.pairs import PACKAGE, load_pair
from spec_jax.reports import interactive
from spec_jax.reports.axes import chart
from spec_jax.reports.decodes import figure_1
from spec_jax.reports.drawing import Box
from spec_jax.reports.png import png


def show(drawing):
    """A drawing of the reports as a picture of the notebook."""
    width = int(drawing.width)
    display(Image(png(drawing), format="png", width=width, alt=drawing.title))


# %% [markdown]
# ## 1. Why it is exact
#
# For the next token the target has probabilities *p*, the draft *q*. The draft draws a token x from q.
#
# * It is **kept** with probability min(1, p(x) / q(x)).
# * If it is not, the target draws a **correction** from what is missing: max(p − q, 0), normalized.
#
# The two add up to p, bar by bar: what is kept is min(p, q), what is corrected fills the rest. So no draft, however bad, changes the output; it changes only how often a guess is kept: **α = Σ min(p, q)**.
#
# Below, the left bar of each token is q, the right one is p with its two parts. The circles are how often each token came out of 100,000 real draws with `verify`, the function that the decoding loop calls. They lie on p.

# %%
DRAFT_TRUSTS = "the"  # @param ["the", "a", "his", "her", "this", "one"]

words = ["the", "a", "his", "her", "this", "one"]
p = np.array([0.34, 0.26, 0.16, 0.12, 0.08, 0.04])
q = np.full(6, 0.1)
q[words.index(DRAFT_TRUSTS)] = 0.5

rows = 100_000
draft_key, verify_key = jax.random.split(jax.random.key(0))
guesses = jax.random.choice(draft_key, 6, (rows, 1), p=jnp.asarray(q))
laws = jnp.broadcast_to(jnp.asarray(q, jnp.float32), (rows, 1, 6))
proposal = Proposal(guesses, laws, jnp.ones(rows, jnp.int32))
target = jnp.broadcast_to(jnp.asarray(p, jnp.float32), (rows, 2, 6))
verdict = jax.jit(functools.partial(verify, TokenRule()))(
    jax.random.split(verify_key, rows), proposal, target
)
kept = np.asarray(verdict.accepted) == 1
drawn = np.where(kept, np.asarray(guesses)[:, 0], np.asarray(verdict.token))
frequency = np.bincount(drawn, minlength=6) / rows

# %% cellView="form" jupyter={"source_hidden": true}
# @title The picture
high = max(0.5, q.max()) * 1.05
frame = chart(
    (-0.6, 5.6),
    (0, high),
    "next token",
    "probability",
    "p, q and what comes out",
    x_ticks=range(6),
    tick_names=words,
)
bars = []
for i, (big, small) in enumerate(zip(p, q)):
    both = min(big, small)
    for left, low, top, look in (
        (i - 0.36, 0, small, {"role": "muted", "opacity": 0.4}),
        (i, 0, both, {"role": "s3"}),
        (i, both, big, {"role": "s1"}),
    ):
        x, y = frame.x(left), frame.y(top)
        width, height = frame.x(left + 0.34) - x, frame.y(low) - y
        bars.append(Box(x, y, width, height, **look))
    bars.append(frame.point(i + 0.17, frequency[i], filled=False, role="ink"))
show(
    frame.drawing(
        bars,
        [
            ({"kind": "box", "role": "muted", "opacity": 0.4}, "q"),
            ({"kind": "box", "role": "s3"}, "kept"),
            ({"kind": "box", "role": "s1"}, "corrected"),
            ({"role": "ink", "filled": False}, "drawn"),
        ],
    )
)
display(
    Markdown(
        f"α = Σ min(p, q) = **{theory.acceptance_rate(p, q):.2f}**; "
        f"kept in the draws: **{kept.mean():.2f}**. Largest distance of a "
        f"circle from p: {np.abs(frequency - p).max():.4f}."
    )
)

# %% [markdown]
# **Try it.** Pull at what the draft trusts, and draw: grey is the draft's q, green is kept, blue is corrected. The circles go to p for every draft, and α is all that changes. (Here the browser draws.)

# %%
display(HTML(interactive.draws(p, q, words)))

# %% [markdown]
# ## 2. A real text
#
# The package comes with a trained pair of T5 models, for English to German and for summaries. `plain` is the usual way, one token a run; `speculative` is the other. In float32 and at temperature 0 both give the same tokens.

# %%
TEXT = "Choose a colour for the lines of the chart, or enter its number."  # @param {type:"string"}
GAMMA = 4  # @param {type:"slider", min:1, max:8, step:1}

shipped = functools.partial(
    load_pair,
    PACKAGE + "pretrained/target",
    PACKAGE + "pretrained/draft",
    PACKAGE + "pretrained/vocabulary.model",
    name="shipped",
)
exact = shipped(dtype="float32")
greedy = exact.policy(temperature=0.0)
tokens = exact.encode("translate English to German: " + TEXT)
given = exact.arguments([tokens], 64) | {"key": jax.random.key(0)}

out = {
    name: generate(algorithm, exact.params, **given, max_new_tokens=64)
    for name, algorithm in {
        "plain": exact.autoregressive(greedy),
        "speculative": exact.speculative(GAMMA, greedy),
    }.items()
}
texts = {
    name: exact.text(np.asarray(made.tokens)[0, : int(made.lengths[0])])
    for name, made in out.items()
}
for name, text in texts.items():
    print(f"{name:12} {text}")
same = np.array_equal(out["plain"].tokens, out["speculative"].tokens)
print("\nidentical tokens:", same)

# %% [markdown]
# ## 3. What each run of the target did
#
# The paper's Figure 1: a line for each run of the target. Green tokens were guessed by the draft and kept; the orange one, struck through, was the first wrong guess; the blue one is the target's own.

# %%
pair, plain_pair = load_both(shipped, None, None)  # each way in its fastest dtype
settings = TraceSettings(load_pair=shipped, policy=greedy, gammas=(GAMMA,), repeats=3)
ways = {
    GAMMA: (pair.speculative(GAMMA, greedy), pair),
    0: (plain_pair.autoregressive(greedy), plain_pair),
}
watched = watch(ways, Row(0, 0, tokens), settings)
plain, fast = (
    record(settings, ways[gamma], gamma, *watched[gamma])(
        source=TEXT, number=1, times=PartTimes(0, 0, 0, 0)
    )
    for gamma in (0, GAMMA)
)
show(figure_1([fast])[0].alone)

# %% [markdown]
# Both ways beside each other, as if they began at once. **Play**, or pull at the time: a run with guesses takes a little longer, and brings more than one token.

# %%
display(HTML(interactive.race([plain, fast])))

# %% cellView="form" jupyter={"source_hidden": true}
# @title In numbers
speed = plain.seconds / fast.seconds
display(
    Markdown(
        f"""
| | runs of the target | tokens a run | milliseconds |
|---|---:|---:|---:|
| plain | {plain.runs} | 1.00 | {1e3 * plain.seconds:.0f} |
| speculative, γ = {GAMMA} | {fast.runs} | {fast.tokens / fast.runs:.2f} | {1e3 * fast.seconds:.0f} |

**Speed: {speed:.2f} times plain decoding** on {fast.device}, one short text, the median of {fast.repeats} calls. Where other programs run too, it says another thing each time.
"""
    )
)

# %% [markdown]
# ## 4. What it can bring
#
# With γ guesses, each kept with probability α, a run of the target brings $\frac{1-\alpha^{\gamma+1}}{1-\alpha}$ tokens. A guess costs c, the time of a draft's step over a target's step. So the speed, over plain decoding, is
#
# $$\frac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c + 1)}$$
#
# More guesses are better only while they are kept: each curve has a best γ, which is marked. Below α = c none pays.

# %% cellView="form" jupyter={"source_hidden": true}
# @title The curves
C = 0.05
gammas = range(1, 13)
frame = chart(
    (0.5, 12.5),
    (0, 5),
    "γ, guesses of a run",
    "speed, times plain decoding",
    f"Speed by theorem 3.8, c = {C:g}",
    x_ticks=gammas,
)
shapes, legend = [frame.curve([(0.5, 1), (12.5, 1)], "ink", width=1.2)], []
for alpha, role, marker in zip(
    (0.9, 0.8, 0.6, 0.3),
    ("s1", "s2", "s3", "s4"),
    ("circle", "square", "up", "down"),
):
    speeds = [(g, theory.speedup(alpha, g, C)) for g in gammas]
    shapes.append(frame.curve(speeds, role))
    best = theory.optimal_gamma(alpha, C, max_gamma=12)
    look = {"role": role, "shape": marker}
    if best:
        shapes.append(frame.point(best, theory.speedup(alpha, best, C), **look))
    legend.append((look, f"α = {alpha:g}"))
show(frame.drawing(shapes, legend))

# %% [markdown]
# And for any α and c:

# %%
display(HTML(interactive.speeds(alpha=0.75, c=C)))

# %% [markdown]
# ## Next
#
# `choose_gamma` measures α and c on your own texts and chooses γ; `t5_on_tpu` measures the T5 models of the paper.
