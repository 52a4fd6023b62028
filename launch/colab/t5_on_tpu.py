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
# # T5 on a TPU
#
# The paper's setting: a large T5 decodes, a small T5 guesses ahead, batch 1. This page looks at the runtime, takes the largest public Flan-T5 that fits in its memory with Flan-T5 small as draft, and measures rows of the paper's Table 2 for English to German.
#
# In Colab: *Runtime, Change runtime type*, a TPU (a GPU does too). Without one, or where the public checkpoints cannot be reached, it takes the small pair that comes with the package; then it shows the way, not the paper's speed.

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
    tpu = any(
        pathlib.Path("/dev").glob(pattern) for pattern in ("accel*", "vfio/[0-9]*")
    )
    extras = "report,tpu" if tpu else "report"
    named = (
        f"spec_jax[{extras}] @ {source}" if "://" in SOURCE else f"{source}[{extras}]"
    )
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", named], check=True)

# %%
import os

os.environ.setdefault("PJRT_NPROC", "1")  # on a CPU, one text is fastest on one thread

import urllib.request

import jax
from IPython.display import HTML, Image, Markdown, display
from IPython.utils.capture import capture_output

from spec_jax.cli.main import main
from spec_jax.decoding.tpu import ask_libtpu
from spec_jax.reports import figures, html_tables, overview
from spec_jax.reports.png import png
from spec_jax.reports.results import read_results

ask_libtpu()  # how a TPU's programs are compiled, before JAX starts
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
# ## What is here

# %%
device = jax.devices()[0]
memory = (device.memory_stats() or {}).get("bytes_limit", 0) / 2**30
on_chip = device.platform != "cpu"
print(f"{len(jax.devices())} x {device.device_kind}", end="")
print(f", {memory:.0f} GiB of memory each" if memory else "")

# %% [markdown]
# ## Which models
#
# Weights in bfloat16, activations, and caches have to fit in one chip's memory. `PAIR` names another choice; fine-tuned checkpoints of your own go the same way, see the page on checkpoints.

# %%
PAIR = "the largest that fits"  # @param ["the largest that fits", "flan_t5_xxl", "flan_t5_xl", "flan_t5_large", "shipped"]

BUCKET = "t5-data"
MODELS = f"gs://{BUCKET}/pretrained_models/t5x/"
VOCABULARY = f"gs://{BUCKET}/vocabs/cc_all.32000.100extra/sentencepiece.model"
DRAFT = MODELS + "flan_t5_small/checkpoint_1198000"
TARGETS = {  # its checkpoint, and the GiB that it wants with its draft
    "flan_t5_xxl": (MODELS + "flan_t5_xxl/checkpoint_1114000", 26),
    "flan_t5_xl": (MODELS + "flan_t5_xl/checkpoint_1138000", 8),
    "flan_t5_large": (MODELS + "flan_t5_large/checkpoint_1164000", 3),
}


def reachable():
    """Whether the bucket of the public checkpoints answers."""
    path = VOCABULARY.removeprefix("gs://")
    url = f"https://storage.googleapis.com/{path}"
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


fitting = [name for name, (_, wanted) in TARGETS.items() if memory >= wanted]
chosen = PAIR
if PAIR == "the largest that fits":
    chosen = fitting[0] if on_chip and fitting else "shipped"
why = ""
if chosen != "shipped" and not reachable():
    chosen, why = "shipped", f"; the bucket of {chosen} cannot be reached"
elif chosen == "shipped" and PAIR != "shipped":
    why = "; the public models want a TPU or a GPU with more memory"

models = ["--gin_file=pairs/shipped.gin"]
if chosen != "shipped":
    models = [
        "--gin_file=pairs/checkpoints.gin",
        f"--gin.TARGET_CHECKPOINT={TARGETS[chosen][0]}",
        f"--gin.DRAFT_CHECKPOINT={DRAFT}",
        f"--gin.VOCABULARY={VOCABULARY}",
        "--gin.DTYPE=bfloat16",
        "--gin.PLAIN_DTYPE=bfloat16",
    ]
print(f"models: {chosen}{why}")

# %% [markdown]
# ## Measure
#
# `spec-jax table2` decodes each text plainly and speculatively, by turns, and measures α, c and the cost of a verification beside. It is silent until it is done: the public models are downloaded first, XXL's 22 GB too, and programs compiled. What it measured is kept: after an interruption, run the cell again and it goes on.

# %%
NUMBER = 2  # @param {type:"slider", min:2, max:64, step:1}
GAMMA = 5  # @param {type:"slider", min:1, max:10, step:1}
TEMPERATURES = "0.0"  # @param ["0.0", "0.0,1.0"]

folder = f"table2_{chosen}_{device.platform}"
with capture_output() as said:  # the table below shows it better
    status = main(
        [
            "table2",
            *models,
            "--gin.MIXTURE_OR_TASK_NAME=ende",
            f"--gin.PAIRS={{'{'small' if chosen != 'shipped' else 'model'}': %PAIR}}",
            f"--gin.NUM_EXAMPLES={NUMBER}",
            f"--gin.GAMMA={GAMMA}",
            f"--gin.TEMPERATURES={TEMPERATURES}",
            "--gin.BATCH_SIZES=()",
            "--gin.INPUT_LENGTHS=64",
            f"--gin.REPEATS={5 if on_chip else 2}",
            f"--gin.EVAL_OUTPUT_DIR={folder}",
        ]
    )
if status:
    raise SystemExit(said.stderr)

# %% [markdown]
# ## Table 2
#
# Under a figure stands the paper's, where it has that row: T5-XXL on a TPU v4 chip.

# %%
results = read_results([folder])
style = figures.styles(results)
(table,) = html_tables.table_2(results)
display(HTML(TABLES + html_tables.markup(table)))

# %%
show(overview.overview(results, style))

# %% [markdown]
# The paper's Figure 2: the tokens that a run of the target brings, by α. Points are measured, curves are equation 1.

# %%
show(figures.figure_2(results, style))

# %%
for record in results.records:
    display(
        Markdown(
            f"**{record.task}, T = {record.temperature:g}, γ = {record.gamma}: "
            f"{record.speedup:.2f} times plain decoding**, "
            f"{record.tokens_per_run:.2f} tokens a run, on {record.device}."
        )
    )

# %% [markdown]
# ## Next
#
# * `NUMBER` of 64 and both temperatures give figures that can be quoted; two texts only show that it runs.
# * Larger slices, T5-XXL over several chips, and runs that survive preemption: `launch/README.md`.
# * What a TPU would do, from the compiled program alone and without one: `spec-jax compile`.
