"""The decoder's contract as a check for anyone's tests."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from spec_jax.base import Decoder, Inputs, Params

# Stale slots hold what was rejected, of the size of what is kept. A finite value: a
# masked slot has weight zero, and zero times NaN is NaN though nothing is read.
_POISON = 100.0
_EXTRA = 3
_LONGEST = 1024


def check_decoder(
    decoder: Decoder,
    params: Params,
    inputs: Inputs,
    tokens: Int[Array | np.ndarray, "b t"],
    *,
    tolerance: float = 1e-4,
) -> None:
    """Checks every promise of `Decoder` that the decoding loop relies on.

    A reference is made by feeding the tokens one by one. Then the same logits are
    wanted from one call and from other splits into calls; in a cache with more
    room; after wrong tokens were written and rolled back; from rows at different
    positions; with poison in every slot not yet written; beside rows of other
    tokens, and with the rows in another order; and from a call that reaches past
    the decoder's own `max_length`. Everything runs under `jax.jit`.

    Use random weights large enough that an early token changes late logits, in
    float32, and a configuration of few positions: with a `max_length` of more than
    1,024 what happens at that limit is traced, not computed.

    Args:
      decoder: the decoder.
      params: its parameters.
      inputs: what its prompt side needs for b rows. Leaves whose first axis is b
        are taken for rows.
      tokens: ids to feed, b >= 2 rows that differ and t >= 4 tokens, more of them
        than the model's attention window where it has one.
      tolerance: the largest difference of two logits that counts as equal,
        absolute below 1 and relative above.

    Raises:
      AssertionError: if a promise is broken; its message says which and where.
      ValueError: if these arguments cannot show it.
    """
    tokens = np.asarray(tokens)
    _check_arguments(tokens, tolerance)
    _check_form(decoder, params, inputs, tokens)
    run = _Run(decoder, params, inputs, tokens, tolerance)
    reference = run.reference()
    _check_sight(run, reference)
    for check in (
        _check_splits,
        _check_rollback,
        _check_rows,
        _check_starts,
        _check_unwritten_slots,
        _check_limit,
        _check_params,
    ):
        check(run, reference)


@functools.partial(jax.jit, static_argnums=(0, 3, 4))
def _init_cache(decoder, params, inputs, batch, max_length):
    return decoder.init_cache(params, inputs, batch, max_length)


@functools.partial(jax.jit, static_argnums=0)
def _extend(decoder, params, cache, tokens, start):
    return decoder.extend(params, cache, tokens, start)


@dataclasses.dataclass(frozen=True, eq=False)
class _Run:
    """A decoder with what it is checked on."""

    decoder: Decoder
    params: Params
    inputs: Inputs
    tokens: np.ndarray
    tolerance: float

    @functools.cached_property
    def wrong(self) -> np.ndarray:
        """Other tokens than the right ones, at every place."""
        vocab_size = self.decoder.vocab_size
        shift = np.random.default_rng(0).integers(1, vocab_size, self.tokens.shape)
        return (self.tokens + shift) % vocab_size

    def cache(self, room: int = _EXTRA, inputs: Any = None) -> Any:
        """An empty cache for the tokens and `room` more."""
        batch, width = self.tokens.shape
        inputs = self.inputs if inputs is None else inputs
        return _init_cache(self.decoder, self.params, inputs, batch, width + room)

    def extend(self, cache, tokens, start) -> tuple[np.ndarray, Any]:
        """One call; `start` may be one number for all rows."""
        start = jnp.broadcast_to(jnp.asarray(start, jnp.int32), (len(tokens),))
        tokens = jnp.asarray(tokens, jnp.int32)
        logits, cache = _extend(self.decoder, self.params, cache, tokens, start)
        return np.asarray(logits, np.float64), cache

    def feed(self, cache, sizes, at=0) -> np.ndarray:
        """The logits of calls of so many tokens, one after another."""
        out = []
        for size in sizes:
            logits, cache = self.extend(cache, self.tokens[:, at : at + size], at)
            out.append(logits)
            at += size
        return np.concatenate(out, 1)

    def reference(self) -> np.ndarray:
        """Logits from one token a call, in a cache without room to spare."""
        reference = self.feed(self.cache(room=0), [1] * self.tokens.shape[1])
        _want(
            not np.isnan(reference).any(),
            "logits are numbers: got NaN from tokens fed one by one",
        )
        return reference

    def wanted(self, got, reference, promise, rows=None) -> None:
        """Compares logits, and says where they differ most."""
        rows = np.arange(len(got)) if rows is None else rows
        with np.errstate(invalid="ignore"):
            difference = np.abs(got - reference) / np.maximum(1, np.abs(reference))
        difference = np.where(got == reference, 0, difference)[rows]
        worst = np.where(np.isnan(difference), np.inf, difference)
        at = np.unravel_index(worst.argmax(), worst.shape)
        row, i, token = rows[at[0]], at[1], at[2]
        _want(
            worst[at] <= self.tolerance,
            f"{promise}: row {row}, token {i}, logit of id {token}: got "
            f"{got[row, i, token]:.6g}, want {reference[row, i, token]:.6g} "
            f"(tolerance {self.tolerance:g})",
        )


def _want(holds: bool | np.bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _check_arguments(tokens: np.ndarray, tolerance: float) -> None:
    integer = np.issubdtype(tokens.dtype, np.integer)
    if tokens.ndim != 2 or not integer or len(tokens) < 2:
        raise ValueError(
            "want integer tokens [b, t] of b >= 2 rows, got "
            f"{tokens.dtype}{list(tokens.shape)}"
        )
    if tokens.shape[1] < 4:
        raise ValueError(f"want t >= 4 tokens in a row, got {tokens.shape[1]}")
    if (tokens == tokens[0]).all():
        raise ValueError("want rows that differ, got equal ones")
    if not tolerance >= 0:
        raise ValueError(f"want tolerance >= 0, got {tolerance}")


def _check_form(decoder, params, inputs, tokens) -> None:
    """What can be known without computing: names, shapes, types."""
    for name in ("vocab_size", "max_length", "init_cache", "extend"):
        _want(hasattr(decoder, name), f"a Decoder has {name}: got none")
    try:
        hash(decoder)
    except TypeError as error:
        raise AssertionError(
            "a decoder is hashable, a static argument of the compiled loop: make it "
            f"a frozen dataclass without arrays ({error})"
        ) from error
    batch, width = tokens.shape
    for t in (1, width):
        promise = f"init_cache and extend can be traced by jax.jit (t = {t})"
        logits = _traced(decoder, params, inputs, (batch, t), width, promise)
        _want(
            logits.shape == (batch, t, decoder.vocab_size),
            f"logits have the shape [b, t, vocab_size] = "
            f"{[batch, t, decoder.vocab_size]}: got {list(logits.shape)}",
        )
        _want(
            jnp.issubdtype(logits.dtype, jnp.floating),
            f"logits are floating: got {logits.dtype}",
        )


def _traced(decoder, params, inputs, shape, max_length, promise):
    """The logits' shape and type of a call of tokens [b, t], without computing it."""
    try:
        cache = jax.eval_shape(
            lambda p, x: decoder.init_cache(p, x, shape[0], max_length), params, inputs
        )
        tokens = jax.ShapeDtypeStruct(shape, jnp.int32)
        start = jax.ShapeDtypeStruct(shape[:1], jnp.int32)
        logits, after = jax.eval_shape(decoder.extend, params, cache, tokens, start)
    except Exception as error:
        raise AssertionError(f"{promise}: {type(error).__name__}: {error}") from error
    _check_carried(cache, after)
    return logits


def _check_carried(before: Any, after: Any) -> None:
    """A cache keeps its structure, or no compiled loop could carry it."""
    structures = jax.tree.structure(before), jax.tree.structure(after)
    _want(
        structures[0] == structures[1],
        f"extend returns a cache of the structure that it got, {structures[0]}: got "
        f"{structures[1]}",
    )
    for (path, old), new in zip(
        jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after)
    ):
        _want(
            (old.shape, old.dtype) == (new.shape, new.dtype),
            f"extend keeps shapes and types of the cache: leaf {_name(path)} was "
            f"{old.dtype}{list(old.shape)}, became {new.dtype}{list(new.shape)}",
        )


def _check_sight(run: _Run, reference: np.ndarray) -> None:
    """Whether a wrong token in the history would be seen at all."""
    history = np.concatenate([run.wrong[:, :-1], run.tokens[:, -1:]], 1)
    logits, _ = run.extend(run.cache(), history, 0)
    change = np.abs(logits[:, -1] - reference[:, -1])
    seen = np.nan_to_num(change, nan=np.inf).max()
    # Zero is a decoder without memory, a bigram for one.
    if 0 < seen < 10 * run.tolerance:
        raise ValueError(
            f"want tolerance below a tenth of what wrong tokens change, {seen:.3g}, "
            f"got {run.tolerance:g}; use larger random weights, or float32"
        )


def _check_splits(run: _Run, reference: np.ndarray) -> None:
    width = run.tokens.shape[1]
    half = width // 2
    for sizes in ((width,), (half, width - half), (1, width - 1)):
        run.wanted(
            run.feed(run.cache(0), sizes),
            reference,
            f"any split into calls gives the same logits: {list(sizes)} tokens a call "
            "differ from one (causal mask, or positions within a call)",
        )
    run.wanted(
        run.feed(run.cache(), [width]),
        reference,
        "room to spare in the cache changes no logits",
    )


def _check_rollback(run: _Run, reference: np.ndarray) -> None:
    width = run.tokens.shape[1]
    half = width // 2
    suspects = _suspects(run)
    _, cache = run.extend(run.cache(), run.tokens[:, :half], 0)
    _, cache = run.extend(cache, run.wrong[:, half:], half)
    for at, what in ((half, "written over"), (0, "written over from the start")):
        # One token less than was wrong: a stale slot stays ahead of the first call.
        run.wanted(
            run.feed(cache, (width - at - 1, 1), at),
            reference[:, at:],
            f"rollback leaves no trace: tokens that were {what} still change logits"
            f"{suspects}",
        )


def _check_starts(run: _Run, reference: np.ndarray) -> None:
    """Rows at different positions, two tokens and then one more for each."""
    batch, width = run.tokens.shape
    start = np.round(np.linspace(width - 3, 0, batch)).astype(int)
    rows, slots = np.arange(batch)[:, None], start[:, None] + np.arange(3)
    ahead = np.arange(width) >= start[:, None]
    for history, what in (
        (run.tokens, "are not those of its own position"),
        (np.where(ahead, run.wrong, run.tokens), "see what was rolled back"),
    ):
        _, cache = run.extend(run.cache(), history, 0)
        first, cache = run.extend(cache, run.tokens[rows, slots[:, :2]], start)
        last, _ = run.extend(cache, run.tokens[rows, slots[:, 2:]], start + 2)
        run.wanted(
            np.concatenate([first, last], 1),
            reference[rows, slots],
            f"rows stand at different starts: logits of a row {what}",
        )


def _check_unwritten_slots(run: _Run, reference: np.ndarray) -> None:
    width = run.tokens.shape[1]
    half = width // 2
    empty = run.cache()
    _, written = run.extend(empty, run.tokens[:, :half], 0)
    for value in (_POISON, -_POISON):
        poisoned = _poisoned(empty, written, half, width + _EXTRA, value)
        run.wanted(
            run.feed(poisoned, (1, width - half - 1), half),
            reference[:, half:],
            "slots at or past start + t are never read: what stands in them changes "
            "logits",
        )


def _check_rows(run: _Run, reference: np.ndarray) -> None:
    batch, width = run.tokens.shape
    half = width // 2
    for row in (0, batch - 1):
        others = (np.arange(batch) != row)[:, None]
        tokens = np.where(others, run.wrong, run.tokens)
        _, cache = run.extend(run.cache(), tokens[:, :half], 0)
        logits, _ = run.extend(cache, tokens[:, half:], half)
        run.wanted(
            logits,
            reference[:, half:],
            "rows do not influence each other: other tokens elsewhere change a row",
            rows=np.array([row]),
        )
    order = np.roll(np.arange(batch), 1)
    inputs = jax.tree.map(
        lambda x: x[order] if np.shape(x)[:1] == (batch,) else x, run.inputs
    )
    logits, _ = run.extend(run.cache(inputs=inputs), run.tokens[order], 0)
    run.wanted(
        logits,
        reference[order],
        "rows do not influence each other: rows in another order have other logits",
    )


def _check_limit(run: _Run, reference: np.ndarray) -> None:
    """A call may reach past the decoder's own limit; what it says there is unused."""
    del reference
    decoder, limit = run.decoder, run.decoder.max_length
    if limit is None:
        return
    promise = (
        f"there may be room past max_length = {limit}, where nothing is used but "
        "nothing fails"
    )
    shape = (len(run.tokens), _EXTRA + 1)
    _traced(decoder, run.params, run.inputs, shape, limit + _EXTRA, promise)
    if limit > _LONGEST or limit < 2:
        return
    columns = np.arange(limit + _EXTRA) % run.tokens.shape[1]
    long = dataclasses.replace(run, tokens=run.tokens[:, columns])
    fitting = dataclasses.replace(run, tokens=long.tokens[:, :limit])
    wanted = fitting.feed(fitting.cache(0), [limit])[:, -2:]
    _, cache = long.extend(long.cache(0), long.tokens[:, : limit - 2], 0)
    beyond, cache = long.extend(cache, long.tokens[:, limit - 2 :], limit - 2)
    again, _ = long.extend(cache, long.tokens[:, limit - 1 : limit], limit - 1)
    for logits, right in ((beyond[:, :2], wanted), (again, wanted[:, 1:])):
        reason = f"{promise}: a call that reaches past it changes logits before it"
        run.wanted(logits, right, reason)


def _check_params(run: _Run, reference: np.ndarray) -> None:
    """Parameters from around the functions would be constants of the program."""
    del reference

    def other(x):
        floating = jnp.issubdtype(jnp.result_type(x), jnp.floating)
        return 1.5 * x + 0.1 if floating else x

    params = jax.tree.map(other, run.params)
    changed = [x is not y for x, y in zip(*map(jax.tree.leaves, (params, run.params)))]
    width = run.tokens.shape[1]
    logits = [
        each.feed(run.cache(0), [width])
        for each in (run, dataclasses.replace(run, params=params))
    ]
    _want(
        not any(changed) or not np.array_equal(*logits),
        "parameters are arguments: logits stay the same with other params, so they "
        "come from elsewhere",
    )


def _slot_axis(before, after, num_written: int, size: int) -> int | None:
    """The axis along which a leaf has one entry a position, if it shows."""
    if not jnp.issubdtype(before.dtype, jnp.floating):
        return None
    changed = np.asarray((before != after) & ~(jnp.isnan(before) & jnp.isnan(after)))
    for axis in range(before.ndim):
        if before.shape[axis] != size:
            continue
        others = tuple(i for i in range(before.ndim) if i != axis)
        slots = changed.any(others)
        if slots[:num_written].any() and not slots[num_written:].any():
            return axis
    return None


def _poisoned(empty, written, num_written: int, size: int, value: float) -> Any:
    """`written` with a value in every floating entry of slots not yet written."""

    def poison(before, after):
        axis = _slot_axis(before, after, num_written, size)
        if axis is None:
            return after
        shape = [1] * after.ndim
        shape[axis] = size
        ahead = (np.arange(size) >= num_written).reshape(shape)
        return jnp.where(ahead, jnp.asarray(value, after.dtype), after)

    return jax.tree.map(poison, empty, written)


def _suspects(run: _Run) -> str:
    """Names leaves that change with every call and have no place for positions."""
    room = run.tokens.shape[1] + _EXTRA
    before = run.cache()
    _, after = run.extend(before, run.tokens[:, :1], 0)
    names = [
        _name(path)
        for (path, old), new in zip(
            jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after)
        )
        if room not in old.shape and not np.array_equal(old, new, equal_nan=True)
    ]
    if not names:
        return ""
    return (
        f" (leaf {', '.join(names)} of the cache has no entry a position and changes: "
        "is it an index, or a state that cannot go back?)"
    )


def _name(path) -> str:
    return jax.tree_util.keystr(path) or "(the cache itself)"
