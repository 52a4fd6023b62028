"""SamplingPolicy: t5x's semantics, per-row values, nothing compiled that is off."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import SamplingPolicy
from spec_jax.core.draws import first_argmax
from spec_jax.core.sampling import token_logprobs

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "sampling_semantics.npz")
GOLDEN_POLICIES = {
    "temp0.7_topk10": {"temperature": 0.7, "top_k": 10},
    "temp1.0_topp0.9": {"top_p": 0.9},
    "temp0.7_topp0.9": {"temperature": 0.7, "top_p": 0.9},
    "temp0.7": {"temperature": 0.7},
    "temp1.0_topk1": {"top_k": 1},
}
SORTS = {"sort", "top_k", "while", "scan", "cumsum"}


def primitives(function, *arguments):
    """The names of all primitives in a function, nested ones included."""
    names = set()

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            names.add(equation.primitive.name)
            for value in equation.params.values():
                for inner in value if isinstance(value, (list, tuple)) else [value]:
                    if hasattr(inner, "jaxpr"):
                        visit(inner.jaxpr)
                    elif hasattr(inner, "eqns"):
                        visit(inner)

    visit(jax.make_jaxpr(function)(*arguments).jaxpr)
    return names


@pytest.mark.parametrize("case", GOLDEN_POLICIES)
def test_equals_t5x(case):
    """What real t5x keeps, ties included, and with what probability."""
    probs = np.asarray(
        SamplingPolicy(**GOLDEN_POLICIES[case]).probs(jnp.asarray(GOLDEN["logits"]))
    )
    np.testing.assert_array_equal(probs > 0, GOLDEN[f"{case}/kept"])
    np.testing.assert_allclose(probs, GOLDEN[f"{case}/probs"], atol=1e-6)


@pytest.mark.parametrize("case", GOLDEN_POLICIES)
def test_values_for_each_row_equal_the_static_ones(case):
    fields = GOLDEN_POLICIES[case]
    logits = jnp.asarray(GOLDEN["logits"])
    rows = {name: jnp.full(len(logits), value) for name, value in fields.items()}
    np.testing.assert_allclose(
        SamplingPolicy().probs(logits, rows),
        SamplingPolicy(**fields).probs(logits),
        atol=1e-7,
    )


def test_temperature_comes_before_the_filters():
    """BEHAVIOURS 12."""
    probs = SamplingPolicy(temperature=2.0, top_p=0.8).probs(jnp.array([3.0, 1.0, 0.0]))
    np.testing.assert_allclose(probs, [0.7311, 0.2689, 0.0], atol=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1e-4])
def test_low_temperatures_are_argmax(temperature):
    """BEHAVIOURS 13."""
    logits = jnp.array([[1.0, 1.001, 1.001], [2.0, 0.0, 1.0]])
    one_hot = [[0, 1, 0], [1, 0, 0]]
    policy = SamplingPolicy(temperature=temperature)
    assert policy.is_greedy()
    np.testing.assert_array_equal(policy.probs(logits), one_hot)
    np.testing.assert_array_equal(policy.greedy(logits), [1, 0])
    rows = {"temperature": jnp.full(2, temperature)}
    assert not SamplingPolicy().is_greedy(rows)
    np.testing.assert_array_equal(SamplingPolicy().probs(logits, rows), one_hot)
    above = SamplingPolicy(temperature=2e-4)
    assert not above.is_greedy()
    assert (np.asarray(above.probs(logits))[0] > 0).sum() == 3


@pytest.mark.parametrize(
    "field",
    [
        {"temperature": -1.0},
        {"temperature": float("inf")},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"min_p": 1.5},
        {"vocab_limit": 0},
        {"banned": (-1,)},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": float("inf")},
        {"logit_bias": {-1: 1.0}},
        {"logit_bias": {1: float("nan")}},
        {"logit_bias": {1: float("inf")}},
        {"logit_bias": ((1, 2.0), (1, 3.0))},
    ],
    ids=str,
)
def test_fields_out_of_range_raise(field):
    """BEHAVIOURS 13, second half, and the other fields."""
    with pytest.raises(ValueError, match="want"):
        SamplingPolicy(**field)


@pytest.mark.skipif(
    hasattr(SamplingPolicy.probs, "__wrapped__"),
    reason="checked annotations refuse these first",
)
def test_fields_of_another_kind_raise():
    with pytest.raises(ValueError, match=r"top_k >= 0 and whole .*, got 2\.5"):
        SamplingPolicy(top_k=2.5)
    with pytest.raises(ValueError, match=r"one temperature, got shape \(2,\)"):
        SamplingPolicy(temperature=np.array([1, 2]))


def test_top_k_keeps_ties():
    """BEHAVIOURS 14."""
    probs = SamplingPolicy(top_k=2).probs(jnp.array([1.0, 1.0, 1.0, 0.0]))
    np.testing.assert_allclose(probs, [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-7)
    signed_zeros = SamplingPolicy(top_k=1).probs(jnp.array([0.0, -0.0, -1.0]))
    np.testing.assert_allclose(signed_zeros, [0.5, 0.5, 0])


def test_logits_are_cast_first():
    """BEHAVIOURS 15: what ties in bfloat16 ties, and the result is float32."""
    logits = jnp.array([4.0, 4.01], jnp.bfloat16)
    probs = SamplingPolicy(temperature=0.5).probs(logits)
    assert probs.dtype == jnp.float32
    np.testing.assert_array_equal(probs, [0.5, 0.5])
    assert SamplingPolicy(temperature=0.0).greedy(logits) == 0
    many = jax.random.normal(jax.random.key(0), (4, 50)).astype(jnp.bfloat16) * 3
    policy = SamplingPolicy(temperature=0.7, top_p=0.9)
    np.testing.assert_array_equal(
        jax.jit(policy.probs)(many), jax.jit(policy.probs)(many.astype(jnp.float32))
    )


def test_banned_ids_and_the_vocabulary_limit():
    """BEHAVIOURS 16: banned ids have probability zero; padding ids do not exist."""
    logits = jnp.array([[5.0, 1.0, 0.0, 9.0]])
    policy = SamplingPolicy(vocab_limit=3, banned=[0])
    probs = np.asarray(policy.probs(logits))
    assert probs.shape == (1, 3) and probs[0, 0] == 0
    np.testing.assert_allclose(probs[0, 1:], jax.nn.softmax(jnp.array([1.0, 0.0])))
    greedy = SamplingPolicy(temperature=0.0, vocab_limit=3, banned=(0,))
    assert greedy.greedy(logits)[0] == 1
    with pytest.raises(ValueError, match="vocab_limit = 5"):
        SamplingPolicy(vocab_limit=5).probs(logits)
    with pytest.raises(ValueError, match="not banned"):
        SamplingPolicy(vocab_limit=1, banned=(0,)).probs(logits)


def test_min_p():
    logits = jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05]))
    probs = SamplingPolicy(min_p=0.5).probs(logits)
    np.testing.assert_allclose(probs, [0.625, 0.375, 0, 0], atol=1e-6)


def test_filters_act_one_after_another():
    """top-p sees what top-k left, renormalized."""
    logits = jnp.log(jnp.array([0.4, 0.3, 0.2, 0.1]))
    probs = SamplingPolicy(top_k=2, top_p=0.55).probs(logits)
    np.testing.assert_allclose(probs, [1.0, 0, 0, 0], atol=1e-6)
    alone = np.asarray(SamplingPolicy(top_p=0.55).probs(logits))
    assert (alone > 0).sum() == 2


def test_rows_have_their_own_values():
    """A batch of rows with different values, some at T = 0 and some off."""
    logits = jax.random.normal(jax.random.key(0), (4, 3, 50)) * 3
    rows = {
        "temperature": jnp.array([0.0, 0.5, 1.0, 2.0]),
        "top_k": jnp.array([0, 5, 0, 1]),
        "top_p": jnp.array([1.0, 1.0, 0.6, 0.9]),
        "min_p": jnp.array([0.0, 0.1, 0.0, 0.0]),
    }
    probs = SamplingPolicy().probs(logits, rows)
    for i in range(4):
        alone = SamplingPolicy(
            temperature=float(rows["temperature"][i]),
            top_k=int(rows["top_k"][i]),
            top_p=float(rows["top_p"][i]),
            min_p=float(rows["min_p"][i]),
        )
        np.testing.assert_allclose(probs[i], alone.probs(logits[i]), atol=1e-7)
    with pytest.raises(ValueError, match="topk"):
        SamplingPolicy().probs(logits, {"topk": rows["top_k"]})
    with pytest.raises(ValueError, match="4 rows"):
        SamplingPolicy().probs(logits, {"top_k": rows["top_k"][:2]})


def test_top_p_of_one_is_off_for_a_row():
    """Rounded sums reach 1 early; the unlikeliest token must survive."""
    logits = jnp.array([[0.0, -20.0, -40.0]])
    probs = SamplingPolicy().probs(logits, {"top_p": jnp.array([1.0])})
    assert (np.asarray(probs) > 0).all()


def test_nothing_is_compiled_in_that_is_off():
    """BEHAVIOURS 27: no sort, no top-p, and no softmax at temperature 0."""
    logits = jnp.zeros((2, 300))
    plain = primitives(SamplingPolicy(temperature=0.7).probs, logits)
    assert "exp" in plain and not plain & SORTS
    greedy = primitives(SamplingPolicy(temperature=0.0).probs, logits)
    assert not greedy & (SORTS | {"exp"})
    for on in ({"top_k": 3}, {"top_p": 0.9}):
        assert primitives(SamplingPolicy(**on).probs, logits) & SORTS
    rows = {"temperature": jnp.ones(2)}
    assert not primitives(SamplingPolicy().probs, logits, rows) & SORTS
    rows = {"top_k": jnp.ones(2, jnp.int32)}
    assert primitives(SamplingPolicy().probs, logits, rows) & SORTS


def test_first_argmax_equals_argmax():
    x = jnp.round(jax.random.normal(jax.random.key(1), (50, 4, 37)) * 2)
    np.testing.assert_array_equal(first_argmax(x), jnp.argmax(x, -1))
    assert first_argmax(jnp.array([1.0, jnp.nan, 0.0])) == 2  # a valid id
    assert first_argmax(jnp.full(3, -jnp.inf)) == 0


def test_equal_policies_are_one_key():
    assert SamplingPolicy(banned=[1, 2]) == SamplingPolicy(banned=(1, 2))
    assert len({SamplingPolicy(banned=[1]), SamplingPolicy(banned=(1,))}) == 1


def test_token_logprobs():
    logits = jax.random.normal(jax.random.key(2), (2, 3, 7))
    tokens = jnp.array([[0, 6, 3], [1, 1, 5]])
    want = np.take_along_axis(
        np.asarray(jax.nn.log_softmax(logits)), np.asarray(tokens)[..., None], -1
    )
    np.testing.assert_allclose(token_logprobs(logits, tokens), want[..., 0], atol=1e-6)


def test_bias():
    """Added before the temperature; -inf bans; ids must exist."""
    logits = jnp.array([[1.0, 2.0, 3.0, 9.0]])
    policy = SamplingPolicy(
        temperature=2.0, vocab_limit=3, logit_bias={0: 4.0, 2: -np.inf}
    )
    want = jax.nn.softmax(jnp.array([2.5, 1.0]))
    np.testing.assert_allclose(policy.probs(logits)[0], [*want, 0], atol=1e-6)
    greedy = SamplingPolicy(temperature=0.0, logit_bias=((0, 9.0),))
    assert greedy.greedy(logits)[0] == 0
    assert policy == SamplingPolicy(
        temperature=2.0, vocab_limit=3, logit_bias=[(2, -np.inf), (0, 4)]
    )
    nothing = SamplingPolicy(banned=(0, 9), logit_bias={1: -np.inf, 2: -np.inf})
    with pytest.raises(ValueError, match="neither ban nor bias excludes"):
        nothing.probs(jnp.zeros(3))
    with pytest.raises(ValueError, match="ids below 3, got 3"):
        SamplingPolicy(vocab_limit=3, logit_bias={3: 1.0}).probs(logits)


@pytest.mark.parametrize("bias", [5, "ab", {"a": 1.0}, [(1, 2, 3)]], ids=str)
@pytest.mark.skipif(
    hasattr(SamplingPolicy.probs, "__wrapped__"),
    reason="checked annotations refuse these first",
)
def test_a_bias_of_another_form_raises(bias):
    with pytest.raises(ValueError, match="want logit_bias as"):
        SamplingPolicy(logit_bias=bias)


HISTORY = jnp.array([[True, False, True, False]])


def test_repetition_penalty():
    """Positive logits are divided, negative ones multiplied, before temperature."""
    logits = jnp.array([[2.0, 2.0, -1.0, -1.0]])
    policy = SamplingPolicy(temperature=0.5, repetition_penalty=2.0)
    want = jax.nn.softmax(jnp.array([1.0, 2.0, -2.0, -1.0]) / 0.5)
    got = policy.probs(logits, history=HISTORY)[0]
    np.testing.assert_allclose(got, want, atol=1e-6)
    greedy = SamplingPolicy(temperature=0.0, repetition_penalty=2.0)
    assert greedy.greedy(logits, history=HISTORY)[0] == 1
    rows = {"repetition_penalty": jnp.array([2.0])}
    row = SamplingPolicy(temperature=0.5).probs(logits, rows, HISTORY)[0]
    np.testing.assert_allclose(row, want, atol=1e-6)
    for missing in (policy.probs, greedy.greedy):
        with pytest.raises(ValueError, match=r"policy\.history"):
            missing(logits)
    with pytest.raises(ValueError, match=r"policy\.history"):
        SamplingPolicy().probs(logits, rows)


def test_bias_comes_before_the_penalty():
    policy = SamplingPolicy(repetition_penalty=2.0, logit_bias={0: 3.0})
    got = policy.probs(jnp.array([[-1.0, 0.0, 0.0, 0.0]]), history=HISTORY)[0]
    np.testing.assert_allclose(got, jax.nn.softmax(jnp.array([1.0, 0, 0, 0])), 1e-6)


def test_history_grows_within_a_block():
    """Position i has seen the row's own tokens and the first i drafted ones."""
    tokens = jnp.array([[1, 4, 0, 0], [2, 2, 3, 9]])
    policy = SamplingPolicy(repetition_penalty=1.1)
    seen = policy.history(tokens, jnp.array([2, 3]), jnp.array([[5, 1], [0, 5]]), 10)
    got = [[np.flatnonzero(row).tolist() for row in block] for block in seen]
    assert got == [[[1, 4], [1, 4, 5], [1, 4, 5]], [[2, 3], [0, 2, 3], [0, 2, 3, 5]]]
    limited = SamplingPolicy(repetition_penalty=1.1, vocab_limit=5)
    assert limited.history(tokens, jnp.array([2, 3]), tokens[:, :1], 10).shape[2] == 5
    assert SamplingPolicy().history(tokens, jnp.array([2, 3]), tokens, 10) is None
    rows = {"repetition_penalty": jnp.ones(2)}
    assert SamplingPolicy().history(tokens, jnp.array([2, 3]), tokens, 10, rows).any()


def test_rows_have_their_own_bias():
    """Also on blocks; columns past the vocabulary's limit are not read."""
    logits = jax.random.normal(jax.random.key(0), (2, 3, 5))
    bias = np.array([[0, 1.0, -np.inf, 0, 7], [2.0, 0, 0, -1.0, -7]])
    policy = SamplingPolicy(vocab_limit=4)
    got = policy.probs(logits, {"logit_bias": bias})
    for i in range(2):
        alone = SamplingPolicy(vocab_limit=4, logit_bias=dict(enumerate(bias[i, :4])))
        np.testing.assert_allclose(got[i], alone.probs(logits[i]), atol=1e-6)
    chosen = SamplingPolicy(temperature=0.0).greedy(logits, {"logit_bias": bias})
    np.testing.assert_array_equal(chosen, (logits + bias[:, None]).argmax(-1))
    for wrong, message in (
        (bias[:1], r"shape \(2, v\)"),
        (bias[:, :3], "all 4 tokens, got 3"),
        (np.full((2, 5), np.inf), "below infinity"),
        (np.full((2, 5), -np.inf), "finite in every row"),
    ):
        with pytest.raises(ValueError, match=message):
            policy.probs(logits, {"logit_bias": wrong})


def test_no_history_is_compiled_in_unless_asked_for():
    tokens, length = jnp.zeros((2, 8), jnp.int32), jnp.ones(2, jnp.int32)

    def scatters(policy):
        trace = jax.make_jaxpr(lambda: policy.history(tokens, length, tokens, 50))()
        return "scatter" in str(trace)

    assert not scatters(SamplingPolicy())
    assert scatters(SamplingPolicy(repetition_penalty=1.2))
