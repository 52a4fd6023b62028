"""Runs of t5x's own scripts on the golden models, with its decoding or with ours.

`python -m tests.adapters.t5x_runs` writes tests/golden/t5x_scripts.json: what t5x's
greedy decoding gives.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from spec_jax.checkpoints import load_params
from spec_jax.checkpoints.t5x_writer import save_t5x
from tests.golden import golden_path

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/t5x_scripts.json"
HEAD = """
from __gin__ import dynamic_registration
import __main__ as script
from t5x import decoding
from t5x import models
from t5x import utils
from t5x.examples.t5 import network
"""
SETTINGS = """
MIXTURE_OR_TASK_NAME = 'spec_jax_bytes'
TASK_FEATURE_LENGTHS = {'inputs': 20, 'targets': 24}
utils.DatasetConfig.batch_size = 4
utils.RestoreCheckpointConfig.dtype = 'float32'
"""
GREEDY = """
models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample
decoding.temperature_sample.temperature = 0.0
decoding.temperature_sample.topk = 0
decoding.temperature_sample.rescale_log_probs = False
"""
SPECULATIVE = """
from spec_jax.adapters import t5x as speculative
from spec_jax.models.t5 import config as draft_model
speculative.speculative_sample.rescale_log_probs = False
"""
OUTPUT = {
    "infer": """
script.infer.mode = 'predict_with_aux'
script.infer.write_fn = @script.write_inferences_to_file
script.write_inferences_to_file.output_ids = True
""",
    "eval": "",
}
PROMPTS = """.predict_batch_with_aux:
  prompt_with_targets = True
  return_all_decodes = True
  num_decodes = 3
"""


@dataclasses.dataclass(frozen=True)
class Run:
    """One call of a script.

    Attributes:
      script: "infer" or "eval".
      model: which golden model.
      method: bindings of the model's predict method.
      ours: bindings that say what drafts for it.
      draft: which golden model drafts, if one does.
      devices: over which our run is partitioned.
    """

    script: str
    model: str
    method: str = ""
    ours: str = ""
    draft: str | None = None
    devices: int = 1


RUNS = {
    "infer": Run("infer", "t5_1_1_target", draft="t5_1_1_draft", devices=2),
    "prompts": Run(
        "infer",
        "t5_1_0_tied",
        PROMPTS,
        "GAMMA = 7\nRULE = 'block'\n",
        draft="t5_1_1_draft",
    ),
    "eval": Run("eval", "t5_1_0_tied", ours="DRAFT = 'lookup'\n"),
}


def network(name: str, scope: str) -> str:
    """A golden model's shape as bindings."""
    manifest = json.loads(golden_path(f"models/{name}/manifest.json").read_text())
    lines = [
        f"  {field} = {tuple(value) if isinstance(value, list) else value!r}"
        for field, value in manifest["config"].items()
        if field.endswith(("_dim", "_heads", "_layers", "_size", "_activations"))
        or field == "logits_via_embedding"
    ]
    return "\n".join([f"{scope}.T5Config:", *lines, "  dtype = 'float32'", ""])


def checkpoint(name: str, folder: pathlib.Path) -> pathlib.Path:
    """A golden model in t5x's format; what t5x did not write itself is written here."""
    if name == "t5_1_1_target":
        params = load_params(golden_path("hf/t5_1_1_gated_gelu"))
        return save_t5x(folder / name, params, step=1000)
    archive = {"t5_1_1_draft": "t5x_draft", "t5_1_0_tied": "t5x_tied"}[name]
    return golden_path(f"{archive}/legacy_float32/checkpoint_1000")


def run(wanted: Run, folder: pathlib.Path, ours: bool) -> dict[str, list]:
    """Calls the script.

    Args:
      wanted: what to run.
      folder: for its files.
      ours: whether our model decodes, or t5x's greedy `temperature_sample`.

    Returns:
      The lines of every JSONL file that it wrote, by name.
    """
    output = folder / "output"
    target = checkpoint(wanted.model, folder)
    bindings = [HEAD, SPECULATIVE if ours else GREEDY, SETTINGS, OUTPUT[wanted.script]]
    bindings += [network(wanted.model, "network"), f"CHECKPOINT_PATH = '{target}'\n"]
    bindings += [f"{wanted.script.upper()}_OUTPUT_DIR = '{output}'\n"]
    if wanted.method:
        name = "speculative.Speculative" if ours else "models."
        bindings += [f"{name}EncoderDecoderModel{wanted.method}"]
    if ours:
        bindings += [wanted.ours]
        if wanted.draft:
            path = checkpoint(wanted.draft, folder)
            bindings += [
                f"DRAFT_CHECKPOINT = '{path}'\nDRAFT_CONFIG = @draft_model.T5Config()\n"
                + network(wanted.draft, "draft_model")
            ]
    file = folder / "run.gin"
    file.write_text("\n".join(bindings))
    files = ["t5x_model.gin", *["t5x/speculative.gin"][: int(ours)]]
    files += [f"t5x/configs/runs/{wanted.script}.gin", str(file)]
    result = call(
        ["-m", f"t5x.{wanted.script}"]
        + [f"--gin_search_paths={ROOT / 'gin_configs'},{ROOT / 'tests/adapters'}"]
        + [f"--gin_file={name}" for name in files],
        wanted.devices if ours else 1,
    )
    if result.returncode:
        raise RuntimeError(result.stderr[-2000:])
    lines = {}
    for path in sorted(output.rglob("*.jsonl*")):
        if not path.name.endswith(".COMPLETED"):
            text = path.read_text().splitlines()
            lines[path.relative_to(output).as_posix()] = [*map(json.loads, text)]
    return lines


def call(arguments: list[str], devices: int = 1) -> subprocess.CompletedProcess:
    """Python on virtual devices of the CPU, where the task here can be imported."""
    paths = [str(ROOT), str(ROOT / "tests/adapters"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(paths),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    results = {}
    for name, wanted in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            results[name] = run(wanted, pathlib.Path(folder), ours=False)
    GOLDEN.write_text(json.dumps(results) + "\n")
