import json
import subprocess
import sys
from pathlib import Path

import pytest

from spec_jax.cli import configuration
from spec_jax.cli.configuration import SearchPath, build, configure, shipped_folder
from spec_jax.cli.errors import UsageError

ROOT = Path(configuration.__file__).parents[2]

# Every shipped file, with a command that can read it and what it then still needs.
NEEDED = {"MODEL_DIR": "x", "DATA_DIR": "x", "VOCABULARY": "x"}
PAIR_NEEDED = {"CHECKPOINT_PATH": "x", "DRAFT_CHECKPOINT_PATH": "x", "VOCABULARY": "x"}
FILES = {
    "demo": {"runs/demo.gin": {}, "runs/choices.gin": {}},
    "generate": {
        "runs/generate.gin": {},
        "pairs/shipped.gin": {},
        "pairs/checkpoints.gin": PAIR_NEEDED,
        "pairs/smollm2.gin": {},
    },
    "evaluate": {
        "runs/evaluate.gin": {"PAIR": "@load_pair"},
        "runs/evaluate_shipped.gin": {},
        "runs/evaluate_checkpoints.gin": PAIR_NEEDED,
    },
    "compare": {"runs/compare.gin": {}, "pairs/smollm2.gin": {}},
    "sweep": {
        "runs/sweep.gin": {"PAIR": "@load_pair"},
        "runs/sweep_shipped.gin": {},
    },
    "train": {
        "runs/train.gin": {**NEEDED, "MODEL": "@T5Config()"},
        "runs/train_shipped_target.gin": NEEDED,
        "runs/train_shipped_draft.gin": NEEDED,
        "models/shipped_target.gin": NEEDED,
        "models/shipped_draft.gin": NEEDED,
    },
}
SHAPE = (
    "vocab_size emb_dim num_heads head_dim mlp_dim num_encoder_layers "
    "num_decoder_layers"
).split()


def generate_settings(*bindings, files=(), folders=()):
    configure("generate", ["runs/generate.gin", *files], bindings, folders)
    return build("generate")


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_every_shipped_file_is_in_the_table():
    shipped = {
        str(path.relative_to(shipped_folder()))
        for path in shipped_folder().rglob("*.gin")
    }
    assert shipped == {name for files in FILES.values() for name in files}


@pytest.mark.parametrize("command", FILES)
def test_every_shipped_file_builds_in_a_fresh_process(command):
    """BEHAVIOURS 33."""
    bindings = {
        name: [
            f"{macro} = {value if value.startswith('@') else repr(value)}"
            for macro, value in needed.items()
        ]
        for name, needed in FILES[command].items()
    }
    for given in bindings.values():
        if "MODEL = @T5Config()" in given:
            given += [f"T5Config.{field} = 8" for field in SHAPE]
    code = (
        "import json, sys\n"
        "from spec_jax.cli.configuration import build, configure\n"
        "command, files = json.loads(sys.argv[1])\n"
        "for name, bindings in files.items():\n"
        "    configure(command, [f'runs/{command}.gin', name], bindings)\n"
        "    print(name, type(build(command)).__name__)\n"
        # The number of CPU threads is read when the backend starts.
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge.backends_are_initialized()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, json.dumps([command, bindings])],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()] == list(bindings)


def test_later_files_win_over_earlier_ones(tmp_path):
    files = [
        write(tmp_path, f"{name}.gin", f"GAMMA = {value}")
        for name, value in (("one", 2), ("two", 3))
    ]
    assert generate_settings(files=files).gamma == 3
    assert generate_settings(files=files[::-1]).gamma == 2


def test_bindings_win_over_every_file(tmp_path):
    """BEHAVIOURS 33."""
    file = write(tmp_path, "mine.gin", "GAMMA = 2\ngenerate.seed = 9")
    settings = generate_settings("GAMMA = 7", "generate.seed = 1", files=[file])
    assert (settings.gamma, settings.seed) == (7, 1)


def test_a_macro_and_the_parameter_it_stands_for_can_both_be_bound():
    assert generate_settings("generate.gamma = 2").gamma == 2


def test_an_include_takes_effect_where_it_stands(tmp_path):
    write(tmp_path, "inner.gin", "GAMMA = 5\nSEED = 5")
    outer = write(tmp_path, "outer.gin", "GAMMA = 1\ninclude 'inner.gin'\nSEED = 1")
    settings = generate_settings(files=[outer], folders=[str(tmp_path)])
    assert (settings.gamma, settings.seed) == (5, 1)


def test_what_an_earlier_run_bound_is_forgotten():
    assert generate_settings("GAMMA = 7").gamma == 7
    assert generate_settings().gamma == 4


def test_given_folders_come_before_the_shipped_one(tmp_path):
    write(tmp_path, "pairs/shipped.gin", "PAIR = @load_pair\nSEED = 8")
    settings = generate_settings(files=["pairs/shipped.gin"], folders=[str(tmp_path)])
    assert settings.seed == 8


def test_a_wheels_folder_is_found_inside_the_package(tmp_path, monkeypatch):
    package = tmp_path / "spec_jax"
    (package / "gin_configs").mkdir(parents=True)
    monkeypatch.setattr("spec_jax.__file__", str(package / "__init__.py"))
    assert shipped_folder() == package / "gin_configs"


@pytest.mark.parametrize(
    ("binding", "said"),
    [
        ("GAMA = 3", "no macro GAMA; did you mean GAMMA?"),
        ("generte.gamma = 3", "did you mean generate?"),
        ("generate.gama = 3", "did you mean gamma?"),
        ("NoSettings.steps = 3", "No configurable matching 'NoSettings'"),
        ("PAIR = @laod_pair", "did you mean load_pair?"),
        ("GAMMA = [3", "no gin syntax"),
        ("GAMMA = 3 4", "no gin syntax"),
        ("GAMMA = 'three'", "generate.gamma wants a whole number, got 'three'"),
        ("GAMMA = 3.0", "generate.gamma wants a whole number, got 3.0"),
        ("GAMMA = True", "generate.gamma wants a whole number, got True"),
        ("GAMMA = 0", "want gamma >= 1, got 0"),
        ("TRUNCATE = 1", "generate.truncate wants True or False, got 1"),
        ("TEMPERATURE = -1.0", "(0 is argmax), got -1.0"),
        ("TASK = 'foo'", "unknown task 'foo'"),
        ("PAIR = 'shipped'", "generate.load_pair wants a function, @NAME, got 'ship"),
        ("MAX_INPUT_LENGTH = 1025", "max_input_length <= 1024, got 1025"),
        ("MAX_INPUT_LENGTH = 1", "want 2 <= max_input_length"),
        ("MAX_NEW_TOKENS = 65537", "max_new_tokens <= 65536, got 65537"),
        ("MAX_NEW_TOKENS = 0", "want max_new_tokens >= 1, got 0"),
        ("TOP_K = 4294967296", "SamplingPolicy.top_k wants a whole number of 32 bits"),
        ("TOP_P = 0.0", "top_p in (0, 1]"),
    ],
)
def test_wrong_bindings_are_named(binding, said):
    with pytest.raises(UsageError) as raised:
        generate_settings(binding)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("command", "binding", "said"),
    [
        ("demo", "PAIR = 'shipped'", "demo.load_pair wants a function"),
        ("demo", "MAX_INPUT_LENGTH = 1025", "max_input_length <= 1024, got 1025"),
        ("evaluate", "EvaluateSettings.rule = 'block'", "wants a Rule or CoupledRule"),
        ("train", "MODEL = 'shipped'", "train.config wants a T5Config, @NAME()"),
        ("train", "MODEL = @T5Config", "wants a T5Config, @NAME(), got @T5Config"),
        ("train", "LEARNING_RATE = 1e999", "learning_rate must be > 0 and finite"),
        ("train", "TrainSettings.log_period = 0", "log_period must be at least 1"),
    ],
)
def test_wrong_bindings_of_other_commands_are_named(command, binding, said):
    files = [f"runs/{command}.gin"]
    if command == "evaluate":
        files.append("pairs/shipped.gin")
    if command == "train":
        files.append("models/shipped_target.gin")
    needed = [f"{name} = 'x'" for name in NEEDED if command == "train"]
    with pytest.raises(UsageError) as raised:
        configure(command, files, [*needed, binding])
        build(command)
    assert said in str(raised.value)


def test_home_is_expanded_in_files_and_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, "gin/mine.gin", "INFER_OUTPUT_DIR = '~/out'\nPREFIX = '~/x'")
    settings = generate_settings(files=["mine.gin"], folders=["~/gin"])
    assert settings.output_dir == f"{tmp_path}/out"
    assert settings.prefix == "~/x"


def test_a_whole_number_serves_as_a_number():
    policy = generate_settings("TEMPERATURE = 1").policy
    assert policy.temperature == 1.0 and isinstance(policy.temperature, float)


def test_a_missing_file_names_the_nearest_and_where_it_was_wanted(tmp_path):
    with pytest.raises(UsageError, match=r"did you mean runs/generate\.gin\?"):
        generate_settings(files=["runs/generat.gin"])
    outer = write(tmp_path, "outer.gin", "include 'inner.gin'")
    with pytest.raises(UsageError, match=r"no gin file inner\.gin \(included by"):
        generate_settings(files=[outer])


def test_a_fault_in_a_file_names_file_and_line(tmp_path):
    file = write(tmp_path, "mine.gin", "include 'pairs/shipped.gin'\n\nGAMMA = = 3\n")
    with pytest.raises(UsageError, match=r"mine\.gin, line 3"):
        generate_settings(files=[file])
    file = write(tmp_path, "mine.gin", "include 'pairs/shipped.gin'\n\nfoo.bar = 3\n")
    with pytest.raises(UsageError, match=r"No configurable.*mine\.gin.* line 3"):
        generate_settings(files=[file])


def test_a_file_that_includes_itself_is_an_error(tmp_path):
    file = write(tmp_path, "loop.gin", "include 'loop.gin'")
    with pytest.raises(UsageError, match="includes itself"):
        generate_settings(files=[file], folders=[str(tmp_path)])


def test_a_file_that_is_no_text_is_an_error(tmp_path):
    path = tmp_path / "bad.gin"
    path.write_bytes(b"GAMMA = \xff")
    with pytest.raises(UsageError, match="cannot read"):
        generate_settings(files=[str(path)])


def test_needed_macros_are_all_named():
    with pytest.raises(
        UsageError, match="needs CHECKPOINT_PATH, DRAFT_CHECKPOINT_PATH"
    ):
        generate_settings(files=["pairs/checkpoints.gin"])
    some = [f"{name} = 'x'" for name in PAIR_NEEDED if name != "VOCABULARY"]
    with pytest.raises(UsageError, match=r"needs VOCABULARY \(a SentencePiece model\)"):
        generate_settings(*some, files=["pairs/checkpoints.gin"])


def test_every_macro_of_the_shipped_files_is_explained():
    for files in FILES.values():
        for macro in SearchPath().macros(list(files)).values():
            assert macro.help or macro.name in ("PAIR", "MODEL"), macro


def test_every_macro_of_the_shipped_files_is_used():
    for command, files in FILES.items():
        texts = "".join(
            part.text for part in SearchPath().texts([f"runs/{command}.gin", *files])
        )
        for macro in SearchPath().macros([f"runs/{command}.gin"]):
            assert f"%{macro}" in texts, (command, macro)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_model_files_have_the_shape_of_the_shipped_models(role):
    from spec_jax.pairs import read_model_config, resolve

    bindings = [f"{name} = 'x'" for name in NEEDED]
    configure("train", ["runs/train.gin", f"models/shipped_{role}.gin"], bindings)
    shipped = read_model_config(resolve(f"spec_jax://pretrained/{role}"))
    assert build("train").config == shipped


def test_gin_makes_plain_objects():
    from spec_jax.core.sampling import SamplingPolicy

    policy = generate_settings("TEMPERATURE = 0.5").policy
    assert type(policy) is SamplingPolicy
    assert policy == SamplingPolicy(temperature=0.5)
