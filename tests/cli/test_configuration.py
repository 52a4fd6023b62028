import json
import subprocess
import sys
import textwrap
from pathlib import Path

import gin
import pytest

from spec_jax.cli import configuration
from spec_jax.cli.configuration import (
    PAIR_MACROS,
    RENAMED,
    SearchPath,
    build,
    configure,
    explain,
    shipped_files,
    shipped_folder,
)
from spec_jax.cli.errors import UsageError

ROOT = Path(configuration.__file__).parents[2]

# What every command reads where no file is given, and what it then still needs.
NEEDED = {"MODEL_DIR": "x", "DATA_DIR": "x", "VOCABULARY": "x"}
FILES = {
    "demo": ["runs/demo.gin"],
    "generate": ["runs/generate.gin"],
    "evaluate": ["runs/evaluate.gin"],
    "compare": ["runs/compare.gin"],
    "sweep": ["runs/sweep.gin"],
    "alpha": ["runs/alpha.gin"],
    "lenience": ["runs/lenience.gin"],
    "train": ["runs/train.gin", "models/shipped_target.gin"],
}


def generate_settings(*bindings, files=(), folders=()):
    configure("generate", ["runs/generate.gin", *files], bindings, folders)
    return build("generate")


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_to_build_the_settings_starts_no_backend():
    """The number of CPU threads is read when it starts, and settings say it."""
    code = (
        "import json, sys\n"
        "from spec_jax.cli.configuration import build, configure\n"
        "for command, files in json.loads(sys.argv[1]).items():\n"
        "    needed = [f\"{name} = 'x'\" for name in sys.argv[2:]]\n"
        "    configure(command, files, needed if command == 'train' else [])\n"
        "    print(command, type(build(command)).__name__)\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge.backends_are_initialized()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, json.dumps(FILES), *NEEDED],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()] == list(FILES)


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
        ("GAMMA = %GAMA", "no macro GAMA is bound; did you mean GAMMA?"),
        ("GAMMA = three", "three is no value; text wants quotes"),
        ("T5Config.emb_dimm = 3", "did you mean emb_dim?"),
        ("GAMMA = [3", "no gin syntax"),
        ("GAMMA = 3 4", "no gin syntax"),
        ("GAMMA = 'three'", "generate.gamma wants a whole number, got 'three'"),
        ("GAMMA = 3.0", "generate.gamma wants a whole number, got 3.0"),
        ("GAMMA = True", "generate.gamma wants a whole number, got True"),
        ("GAMMA = 0", "want gamma >= 1, got 0"),
        ("TRUNCATE = 1", "generate.truncate wants True or False, got 1"),
        ("TEMPERATURE = -1.0", "(0 is argmax), got -1.0"),
        ("MODEL = 3", "generate reads no macro MODEL here; models/byt5/base.gin is a"),
        ("QQQQQ = 3", "no macro QQQQQ; there are BATCH_SIZE, CONFIDENCE, "),
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
    if command == "train":
        files.append("models/shipped_target.gin")
    needed = [f"{name} = 'x'" for name in NEEDED if command == "train"]
    with pytest.raises(UsageError) as raised:
        configure(command, files, [*needed, binding])
        build(command)
    assert said in str(raised.value)


@pytest.mark.parametrize("name", RENAMED)
def test_old_names_of_macros_name_the_new_one(name, tmp_path):
    said = f"no macro {name}; did you mean {RENAMED[name]}?"
    with pytest.raises(UsageError) as raised:
        generate_settings(f"{name} = 'x'")
    assert str(raised.value) == said
    file = write(tmp_path, "mine.gin", f"{name} = 'x'")
    with pytest.raises(UsageError) as raised:
        generate_settings(files=[file])
    assert str(raised.value) == f"{file}: {said}"
    # A configuration of its time still means what it meant.
    file = write(tmp_path, "old.gin", f"{name} = 7\ngenerate.gamma = %{name}")
    assert generate_settings(files=[file]).gamma == 7


def test_what_only_other_commands_read_is_said():
    """gin's own error: in this process another test may have let it know the name."""
    error = ValueError(
        "No configurable matching 'compare'.\n  In bindings string line 1"
    )
    assert explain(error, "generate").endswith("compare can read it, generate does not")
    error = ValueError("No configurable matching reference '@load_causal_lm'.")
    assert "generate, compare can read it, demo does not" in explain(error, "demo")


def test_a_misspelt_scope_is_named(tmp_path):
    text = """
    include 'pairs/t5_1_1_xxl_small.gin'
    load_pair.target_config = @t5_1_1/xll/T5Config()  # not @nor/this
    """
    file = write(tmp_path, "mine.gin", textwrap.dedent(text))
    with pytest.raises(UsageError, match=r"in the scope t5_1_1/xll; did you mean t5_1"):
        generate_settings(files=[file])


XXL = "pairs/t5_1_1_xxl_small.gin"


@pytest.mark.parametrize(
    ("files", "binding", "said"),
    [
        (
            [XXL],
            "t5_1_1/xl/T5Config.num_heads = 3",
            "of t5_1_1/xl/T5Config.num_heads; ",
        ),
        ([XXL], "t5_1_1/xl/T5Config.num_heads = 3", "did you mean t5_1_1/xxl?"),
        ([XXL], "t5_1_1/xl/T5Config.num_heads = 3", "to: t5_1_1/small, t5_1_1/xxl"),
        # The largest is built from base; nothing here is of that size.
        ([XXL], "t5_1_1/base/T5Config.num_heads = 3", "to: t5_1_1/small, t5_1_1/xxl"),
        ([], "target/T5Config.num_heads = 0", "referred to: no scope"),
        ([], "target/spec_jax.T5Config.num_heads = 0", "referred to: no scope"),
        ([], "foo/generate.gamma = 64", "to the scope of foo/generate.gamma; "),
        ([], "x/BATCH_SIZE = 64", "to the scope of x/BATCH_SIZE; "),
        ([], "foo/generate:\n  gamma = 64", "to the scope of foo/generate.*; "),
    ],
)
def test_a_scope_that_nothing_refers_to_is_an_error(files, binding, said, tmp_path):
    """gin passes it over, and the run would be another than was asked for."""
    for given, read in (
        ([binding], files),
        ([], [*files, write(tmp_path, "mine.gin", binding)]),
    ):
        with pytest.raises(UsageError) as raised:
            generate_settings(*given, files=read)
        assert said in str(raised.value) and "\n" not in str(raised.value)


def test_scopes_that_are_referred_to_are_bound_in(tmp_path):
    def emb_dims(*bindings, text=""):
        file = write(tmp_path, "mine.gin", text)
        generate_settings(*bindings, files=[XXL, file])
        dims = []
        for scope in ("t5_1_1/xxl", "t5_1_1/small"):
            with gin.config_scope(scope):
                dims.append(build("T5Config").emb_dim)
        return tuple(dims)

    one = "t5_1_1/small/T5Config.emb_dim = 8"
    assert emb_dims(one) == emb_dims(text=one) == (4096, 8)
    # What is bound in a scope holds below it, and without one everywhere.
    assert emb_dims("t5_1_1/T5Config.emb_dim = 8") == (4096, 512)
    assert emb_dims("T5Config.emb_dim = 8") == (4096, 512)
    # Sizes of one's own may be built on each other, as the shipped ones are.
    text = """
    MODEL = @mine/base/T5Config()
    mine/T5Config.vocab_size = 32128
    mine/base/T5Config.emb_dim = 8
    MODEL = @mine/large/T5Config()
    mine/large/T5Config.emb_dim = 16
    """
    assert emb_dims(text=textwrap.dedent(text)) == (4096, 512)
    # A block, and a macro with a scope.
    text = """
    t5_1_1/small/T5Config:
      emb_dim = %my/EMB_DIM
      num_heads = 2
    my/EMB_DIM = 24
    """
    assert emb_dims(text=textwrap.dedent(text)) == (4096, 24)


def test_what_is_indented_counts(tmp_path):
    file = write(tmp_path, "inner.gin", "SEED = 5")
    outer = write(tmp_path, "mine.gin", f"  include '{file}'\n  GAMMA = 3\n")
    settings = generate_settings(files=[outer])
    assert (settings.seed, settings.gamma) == (5, 3)
    outer = write(tmp_path, "mine.gin", "  GAMA = 3\n")
    with pytest.raises(UsageError, match="no macro GAMA; did you mean GAMMA"):
        generate_settings(files=[outer])
    # Below a name it is a parameter.
    outer = write(tmp_path, "mine.gin", "generate:\n  gamma = 7\nSEED = 2\n")
    settings = generate_settings(files=[outer])
    assert (settings.seed, settings.gamma) == (2, 7)


def test_a_wrong_type_names_the_macro_and_its_file(tmp_path):
    file = write(tmp_path, "mine.gin", "GAMMA = '3'")
    said = "generate.gamma wants a whole number, got '3'"
    for given, files, origin in (
        (["GAMMA = '3'"], [], " (GAMMA)"),
        ([], [file], f" (GAMMA in {file})"),
        (["GAMMA = '3'"], [file], " (GAMMA)"),
        (["generate.gamma = '3'"], [file], ""),
    ):
        with pytest.raises(UsageError) as raised:
            generate_settings(*given, files=files)
        assert str(raised.value) == said + origin


def test_a_config_without_a_needed_value_is_named():
    settings = generate_settings("load_pair.target_config = @T5Config()")
    with pytest.raises(ValueError, match="T5Config needs a value for 'vocab_size'"):
        settings.load_pair(dtype="float32")


def test_two_sizes_can_be_read_together():
    files = ["models/t5_1_1/xxl.gin", "models/t5_1_1/small.gin", "models/mt5/xl.gin"]
    bindings = [f"{name} = 'x'" for name in NEEDED]
    sizes = {}
    for scope in ("t5_1_1/xxl", "t5_1_1/small", "mt5/xl"):
        macro = f"MODEL = @{scope}/T5Config()"
        configure("train", ["runs/train.gin", *files], [*bindings, macro])
        config = build("train").config
        sizes[scope] = (config.vocab_size, config.emb_dim, config.num_heads)
    assert sizes == {
        "t5_1_1/xxl": (32128, 4096, 64),
        "t5_1_1/small": (32128, 512, 6),
        "mt5/xl": (250112, 2048, 32),
    }


def test_a_macro_misspelt_in_a_file_is_named_with_the_file(tmp_path):
    file = write(tmp_path, "mine.gin", "GAMA = 3")
    with pytest.raises(UsageError, match=r"mine\.gin: no macro GAMA; did you mean GAM"):
        generate_settings(files=[file])
    # What another command reads may stand there.
    assert generate_settings(files=[write(tmp_path, "mine.gin", "MODEL = 3")])


@pytest.mark.parametrize("name", PAIR_MACROS)
def test_a_pairs_macro_that_the_pair_is_not_made_of_is_an_error(name, tmp_path):
    """Else the shipped pair would be measured in place of the user's."""
    said = f"reads no macro {name} here: include 'pairs/checkpoints.gin'"
    with pytest.raises(UsageError, match=said):
        generate_settings(f"{name} = 'x'")
    file = write(tmp_path, "mine.gin", f"{name} = 'x'")
    with pytest.raises(UsageError, match=rf"mine\.gin: generate {said}"):
        generate_settings(files=[file])
    given = ["TARGET_CHECKPOINT = 'x'", "DRAFT_CHECKPOINT = 'x'"]
    assert generate_settings(*given, files=["pairs/checkpoints.gin", file])
    # A training has no pair.
    needed = [f"{name} = 'x'" for name in NEEDED]
    files = ["runs/train.gin", "models/shipped_target.gin", file]
    configure("train", files, needed)


@pytest.mark.parametrize("command", ["evaluate", "sweep"])
def test_no_file_means_the_shipped_pair_and_one_of_tasks_leaves_it(command):
    bindings = ["EVAL_OUTPUT_DIR = 'x'"]
    for files in ([], ["tasks/summarize.gin"]):
        configure(command, [f"runs/{command}.gin", *files], bindings)
        pair = build(command).load_pair(abstract=True)
        assert pair.name == "shipped"


def test_home_is_expanded_in_files_and_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, "gin/mine.gin", "INFER_OUTPUT_DIR = '~/out'\nPREFIX = '~/x'")
    settings = generate_settings(files=["mine.gin"], folders=["~/gin"])
    assert settings.output_dir == f"{tmp_path}/out"
    assert settings.tasks.prefix == "~/x"


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
    file = write(tmp_path, "mine.gin", "include 'pairs/shipped.gin'\n\nGAMMA = [3\n")
    with pytest.raises(UsageError, match=r"mine\.gin, line \d: no gin syntax"):
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
    with pytest.raises(UsageError, match="needs TARGET_CHECKPOINT, DRAFT_CHECKPOINT"):
        generate_settings(files=["pairs/checkpoints.gin"])
    with pytest.raises(UsageError, match=r"needs DRAFT_CHECKPOINT \(the draft's weigh"):
        generate_settings("TARGET_CHECKPOINT = 'x'", files=["pairs/checkpoints.gin"])


def test_a_needed_macro_that_nothing_reads_is_not_needed(tmp_path):
    file = write(tmp_path, "mine.gin", "MODEL = %gin.REQUIRED")
    assert generate_settings(files=[file]).gamma == 4


def test_every_macro_of_the_shipped_files_is_explained():
    for path in shipped_files():
        files = [f"runs/{command}.gin" for command in FILES]
        for macro in SearchPath().macros([*files, str(path)]).values():
            assert macro.help or macro.name in ("PAIR", "MODEL"), macro


def test_every_macro_of_a_run_is_read():
    for command, files in FILES.items():
        texts = "".join(part.text for part in SearchPath().texts(files))
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
