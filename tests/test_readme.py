"""The README's code runs as it stands there."""

import pathlib
import re

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_the_example_of_another_decoder_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    decoder, step = (block for block in blocks if "Bigram" in block)
    assert len([line for line in step.splitlines() if line.strip()]) <= 12
    exec(compile(decoder + step, str(README), "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert 1.0 < float(printed.split()[-1]) <= 5.0


def test_the_example_of_a_pair_runs(capsys):
    """With the shipped pair in the place of somebody's checkpoints."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if "load_pair(" in block)
    shipped = {
        "path/to/t5_xxl": "spec_jax://pretrained/target",
        "path/to/t5_small": "spec_jax://pretrained/draft",
        "sentencepiece.model": "spec_jax://pretrained/vocabulary.model",
    }
    for theirs, ours in shipped.items():
        assert theirs in block
        block = block.replace(theirs, ours)
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    assert "Datei" in capsys.readouterr().out


def test_files_that_the_readme_links_to_are_there():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text("utf-8"))
    assert len(links) >= 4
    for link in links:
        assert (README.parent / link).exists(), link
