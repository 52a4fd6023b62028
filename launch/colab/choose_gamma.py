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
# # Choose γ on your own texts
#
# How much speculative decoding brings depends on your texts and your machine: on **α**, how often a guess of the draft is kept, and on **c**, what a guess costs. This page measures both, finds the **γ** (guesses of one run) that is fastest, says whether a draft pays at all, and then checks the promise by a clock.
#
# It runs `spec-jax choose-gamma`, the same as on a command line.


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
import os

os.environ.setdefault("PJRT_NPROC", "1")  # on a CPU, one text is fastest on one thread

import functools

import jax
import numpy as np
from IPython.display import HTML, Image, Markdown, display
from IPython.utils.capture import capture_output

from spec_jax import generate
from spec_jax.cli.choose_gamma import advise
from spec_jax.cli.decoding import load_both
from spec_jax.cli.main import main
from spec_jax.data.samples import load_samples
from spec_jax.experiments.clock import time_call, time_in_turns
from spec_jax.pairs import PACKAGE, load_pair
from spec_jax.reports import figures, html_tables, payoff
from spec_jax.reports.png import png
from spec_jax.reports.results import read_results

TABLES = (
    "<style>.scroll{overflow-x:auto}.scroll td{white-space:nowrap}"
    ".scroll th,.scroll td:last-child{white-space:normal}"
    ".scroll th,.scroll td{text-align:right;vertical-align:top}"
    ".scroll th.text,.scroll td.text{text-align:left}"
    ".scroll .paper{display:block}</style>"
)


def show(pictures):
    """Pictures of the reports, each with what is said of it."""
    for picture in pictures:
        drawing, width = picture.alone, int(picture.alone.width)
        display(Image(png(drawing), format="png", width=width, alt=drawing.title))
        display(Markdown(f"*{picture.caption}*"))


# %% [markdown]
# ## Your texts
#
# One a line; twenty or more say something about others like them. Left empty, some sentences of a manual stand in, which the shipped pair was not trained on.

# %%
TEXTS = """
"""  # paste your own between the quotes
NUMBER = 6  # @param {type:"slider", min:5, max:60, step:1}
DRAFTS = "model"  # @param ["model", "model,bigram", "model,bigram,lookup"]
TEMPERATURE = 0.0  # @param {type:"slider", min:0, max:1, step:0.1}
LARGEST_GAMMA = 6  # @param {type:"slider", min:2, max:12, step:1}

texts = [line for line in TEXTS.splitlines() if line.strip()]
samples = [row["en"] for row in load_samples("translation")]
texts = texts or [text for text in samples if len(text) < 100][:NUMBER]
with open("texts.txt", "w", encoding="utf-8") as file:
    file.writelines(text + "\n" for text in texts)
print(*texts, sep="\n")

# %% [markdown]
# ## Measure
#
# A while, most of it compiling: every text is decoded plainly, each draft is asked at each place what it would have guessed, and the parts of a step are timed.

# %%
with capture_output() as said:  # what it finds is shown below
    status = main(
        [
            "choose-gamma",
            "--input_file=texts.txt",
            "--output_file=choice.jsonl",
            f"--gin.DRAFTS={DRAFTS}",
            f"--gin.TEMPERATURE={TEMPERATURE}",
            f"--gin.MOST={LARGEST_GAMMA}",
            "--gin.MAX_NEW_TOKENS=64",
        ]
    )
if status:
    raise SystemExit(said.stderr)

# %% [markdown]
# ## What follows
#
# The dashed curves are the speeds that measured acceptances and costs give for each γ: up while guesses are kept, down when they cost more than they bring.

# %%
results = read_results(["choice.jsonl"])
style = figures.styles(results)
display(Markdown("  \n".join(advise(results.choices).sentences)))
display(HTML(TABLES + html_tables.markup(html_tables.choices(results))))
show(payoff.by_gamma(results, style))

# %% [markdown]
# The paper's Figure 3: the best γ by α, for four costs c of a guess. The points are your drafts.

# %%
show(figures.figure_3(results, style))

# %% [markdown]
# ## Is it so?
#
# The best draft with its γ, against plain decoding, on all the texts: the whole of each call by a clock, encoders and all.

# %%
best = max(results.choices, key=lambda choice: choice.speeds[choice.best])
shipped = functools.partial(
    load_pair,
    PACKAGE + "pretrained/target",
    PACKAGE + "pretrained/draft",
    PACKAGE + "pretrained/vocabulary.model",
    tables=PACKAGE + "pretrained/ngram.safetensors",
    name="shipped",
)
pair, plain_pair = load_both(shipped, None, None)  # each way in its fastest dtype
pair = pair.using(best.draft)
policy = pair.policy(TEMPERATURE)
rows = [pair.encode("translate English to German: " + text) for text in texts]
length = max(map(len, rows))
given = [pair.arguments([row], length) for row in rows]


def decode(algorithm, params):
    """Every text by itself, as someone who waits for each would."""
    return [
        generate(algorithm, params, **one, key=jax.random.key(i), max_new_tokens=64)
        for i, one in enumerate(given)
    ]


calls = {
    "plain": functools.partial(
        decode, plain_pair.autoregressive(policy), plain_pair.params
    ),
    "speculative": functools.partial(
        decode, pair.speculative(best.best, policy), pair.params
    ),
}
for call in calls.values():
    time_call(call)  # compiles
timings = time_in_turns(calls, 5)
rates = {
    name: sum(int(out.lengths[0]) for out in timing.result) / timing.median
    for name, timing in timings.items()
}
speed = rates["speculative"] / rates["plain"]

# %%
alike = [
    np.array_equal(a.tokens, b.tokens)
    for a, b in zip(timings["plain"].result, timings["speculative"].result)
]
display(
    Markdown(
        f"""
| | tokens a second |
|---|---:|
| plain | {rates["plain"]:.0f} |
| {best.draft}, γ = {best.best} | {rates["speculative"]:.0f} |

**Measured: {speed:.2f} times plain decoding**; expected were {best.speeds[best.best]:.2f}. At temperature 0 the texts are the same up to rounding; here {sum(alike)} of {len(alike)} are, with the two ways in {plain_pair.dtype} and {pair.dtype}.

The same on a command line: `spec-jax generate --draft={best.draft} --gamma={best.best} ...`
"""
    )
)
