"""The few texts that are committed, for demonstrations and tests.

Translations are rows of the test split from the help of LibreOffice (MPL-2.0, see
NOTICE); summaries are descriptions of invented software, written for this project.
"""

import importlib.resources
import json

_FILES = {"translation": "lohelp.jsonl", "summarization": "summaries.jsonl"}


def load_samples(task: str) -> list[dict[str, str]]:
    """The committed samples of a task, none of which the shipped pair was trained on.

    Args:
      task: "translation" or "summarization".

    Returns:
      Rows in a fixed order, with the fields `group`, `en`, `de` for translation and
      `document`, `summary` for summarization.

    Raises:
      ValueError: there are no samples of this task.
    """
    if task not in _FILES:
        raise ValueError(
            f"samples are there for {' and '.join(map(repr, _FILES))}, got {task!r}"
        )
    text = importlib.resources.files(__name__).joinpath(_FILES[task])
    return [json.loads(line) for line in text.read_text("utf-8").splitlines() if line]
