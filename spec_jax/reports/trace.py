"""The paper's Figure 1: a text decoded, one line for each run of the target."""

import dataclasses
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from rich.text import Text

from spec_jax.base import StepInfo

SPACE = "\u2581"
"""What SentencePiece writes for a space."""

STYLES = {
    "accepted": "green",
    "rejected": "red strike",
    "chosen": "bold bright_blue",
    "earlier": "dim",
}
_MARKS = {"accepted": ("", ""), "rejected": ("[-", "-]"), "chosen": ("{+", "+}")}
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclasses.dataclass(frozen=True)
class TargetRun:
    """What one run of the target did to one row.

    Attributes:
      num_drafted: drafted tokens that it judged.
      accepted: those it kept.
      rejected: the first that it did not keep; what was drafted after it was never
        looked at. Empty where all were kept.
      chosen: the target's own token: the correction of `rejected`, or the bonus
        token after a proposal that was kept whole. Empty where the row ended before.
    """

    num_drafted: int
    accepted: tuple[int, ...]
    rejected: tuple[int, ...]
    chosen: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens that the run brought."""
        return len(self.accepted) + len(self.chosen)


def target_runs(infos: StepInfo, row: int = 0) -> list[TargetRun]:
    """The runs of one row of a trace, without those after its end.

    Args:
      infos: what `trace` returned, arrays with a leading axis of steps.
      row: which.
    """
    fields = {
        field.name: np.asarray(getattr(infos, field.name))[:, row]
        for field in dataclasses.fields(infos)
    }
    runs = []
    for step in np.flatnonzero(fields["num_emitted"]):
        accepted = int(fields["num_accepted"][step])
        drafted = int(fields["num_proposed"][step])
        emitted = fields["emitted"][step, : fields["num_emitted"][step]].tolist()
        proposed = fields["proposed"][step, :drafted].tolist()
        runs.append(
            TargetRun(
                num_drafted=drafted,
                accepted=tuple(emitted[:accepted]),
                rejected=tuple(proposed[accepted : accepted + 1]),
                chosen=tuple(emitted[accepted:]),
            )
        )
    return runs


def figure(
    runs: Sequence[TargetRun],
    pieces: Sequence[str],
    width: int = 80,
    color: bool = True,
) -> list[Text]:
    """One line for each run: its number, its tokens, and what it did to the text.

    In colour a line shows the text so far, dim, and then the accepted tokens green,
    the rejected one red and struck through, the target's own blue; where a line is
    full the next begins anew. Without colour it shows the run's tokens alone:
    `accepted [-rejected-] {+chosen+}`.

    Args:
      runs: of one row.
      pieces: the vocabulary's pieces, U+2581 for a space.
      width: cells of a line.
      color: whether the output shows styles.

    Returns:
      Lines for rich to print, each at most `width` cells wide where a single run's
      tokens are.

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, figure 1.
    """
    texts = run_texts(runs, pieces)
    digits = len(str(len(runs)))
    lines: list[Text] = []
    so_far = Text()
    for number, (run, parts) in enumerate(zip(runs, texts, strict=True), 1):
        head = Text.assemble(
            (f"{number:>{digits}}", "dim"),
            f" +{run.num_tokens} ",
        )
        room = width - head.cell_len
        new = Text()
        for kind, text in parts:
            new.append_text(_styled(kind, text, color))
        body = new
        if color:
            if so_far.cell_len + new.cell_len > room:
                so_far = Text().append("…", STYLES["earlier"])
            body = so_far + new  # a copy
        for kind, text in parts:
            if kind != "rejected":
                so_far.append(text, STYLES["earlier"])
        if number == 1:  # a text's first piece has a space before it
            body, so_far = map(_without_first_space, (body, so_far))
        lines.append(head + body)
    return lines


def legend(color: bool = True) -> Text:
    """What the colours, or the marks, of `figure` mean."""
    names = {
        "accepted": "accepted",
        "rejected": "rejected",
        "chosen": "the target's own token",
    }
    return Text("   ").join(_styled(kind, text, color) for kind, text in names.items())


def run_texts(
    runs: Sequence[TargetRun], pieces: Sequence[str]
) -> list[list[tuple[str, str]]]:
    """The runs' tokens as text: (kind, text) parts in reading order.

    The bytes of one character may be spread over tokens and runs; it appears whole
    with its last byte, and bytes that make no character as \\xNN.

    Args:
      runs: of one row.
      pieces: the vocabulary's pieces.

    Returns:
      For each run its non-empty parts, of the kinds accepted, rejected, chosen.
    """
    texts = []
    pending: list[int] = []  # bytes of a character that is not complete yet
    for run in runs:
        accepted, pending = _decode(run.accepted, pieces, pending)
        rejected, broken = _decode(run.rejected, pieces, pending)
        rejected += _escape(broken[len(pending) :] if run.rejected else [])
        chosen, pending = _decode(run.chosen, pieces, pending)
        parts = [("accepted", accepted), ("rejected", rejected), ("chosen", chosen)]
        texts.append([(kind, text) for kind, text in parts if text])
    if pending:
        texts[-1].append(("chosen", _escape(pending)))
    return texts


def _decode(
    tokens: Sequence[int], pieces: Sequence[str], pending: Sequence[int]
) -> tuple[str, list[int]]:
    """Text of tokens after unfinished bytes, and the bytes unfinished after them."""
    text, held = "", list(pending)
    for token in tokens:
        piece = pieces[token] if token < len(pieces) else f"<{token}>"
        byte = _BYTE.fullmatch(piece)
        if byte is None:
            text += _escape(held) + _printable(piece.replace(SPACE, " "))
            held = []
            continue
        held.append(int(byte[1], 16))
        try:
            text += _printable(bytes(held).decode("utf-8"))
            held = []
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                text += _escape(held)
                held = []
    return text, held


def _printable(text: str) -> str:
    """Control characters, which could command the terminal, escaped."""
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) == "Cc" else c
        for c in text
    )


def _escape(values: Sequence[int]) -> str:
    return "".join(f"\\x{value:02x}" for value in values)


def _styled(kind: str, text: str, color: bool) -> Text:
    """Text in its style or between its marks; a space before it has neither."""
    bare = text.lstrip(" ")
    if not bare:
        bare, text = text.replace(" ", SPACE), text.replace(" ", SPACE)
    space = text[: len(text) - len(bare)]
    if color:
        return Text.assemble(space, (bare, STYLES[kind]))
    before, after = _MARKS[kind]
    return Text(f"{space}{before}{bare}{after}")


def _without_first_space(text: Text) -> Text:
    return text[1:] if text.plain.startswith(" ") else text
