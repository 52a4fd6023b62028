"""tests/README.md names, for every known fault, the tests of its right answer."""

import ast
import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
CASES = 37


def marked():
    """Tests by the number that their docstring names, as BEHAVIOURS 12."""
    found = collections.defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = ast.get_docstring(node) or ""
                for numbers in re.findall(r"BEHAVIOURS ((?:\d+(?:, | and )?)+)", text):
                    for number in re.findall(r"\d+", numbers):
                        place = path.relative_to(ROOT / "tests")
                        found[int(number)].add(f"{place}::{node.name}")
    return found


def listed():
    """Tests by number in the table."""
    text = (ROOT / "tests" / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| .+? \| (.+) \|$", text, re.MULTILINE)
    return {int(number): set(re.findall(r"`([^`]+)`", names)) for number, names in rows}


def test_every_case_has_a_row_with_exactly_its_tests():
    """A test that says which case it holds is in the table, and no other is."""
    assert listed() == marked()
    assert sorted(listed()) == list(range(1, CASES + 1))
