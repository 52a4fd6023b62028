import pytest
from jax.sharding import PartitionSpec as P

from spec_jax.partitioning import (
    mesh_axes,
    replicated_rules,
    standard_logical_axis_rules,
)


def test_the_defaults_are_those_of_t5x_in_its_order():
    assert standard_logical_axis_rules() == (
        ("batch", "data"),
        ("vocab", "model"),
        ("embed", None),
        ("mlp", "model"),
        ("heads", "model"),
        ("kv", None),
        ("joined_kv", "model"),
        ("relpos_buckets", None),
        ("abspos_buckets", None),
        ("length", None),
        ("layers", None),
        ("stack", None),
        ("mlp_activations", None),
    )


@pytest.mark.parametrize(
    "activations, parameters, names, spec",
    [
        (1, 1, ("embed", "mlp"), P(None, "model")),
        (1, 1, ("batch", "heads", "length", "kv"), P("data", "model", None, None)),
        (1, 1, ("vocab", "embed"), P("model", None)),
        (1, 1, ("batch", None), P("data", None)),
        (1, 2, ("embed", "joined_kv"), P("data", "model")),
        (1, 2, ("batch", "length", "embed"), P("data", None, None)),
        (2, 1, ("batch", "length", "embed"), P("data", None, "model")),
        (2, 1, ("embed", "mlp"), P(None, "model")),
        (2, 2, ("embed", "mlp"), P("data", "model")),
        (2, 2, ("embed",), P("model")),
    ],
)
def test_axes_choose_in_the_order_of_the_rules(activations, parameters, names, spec):
    rules = standard_logical_axis_rules(activations, parameters)
    assert mesh_axes(names, rules) == spec


def test_a_collision_names_both_axes():
    with pytest.raises(ValueError, match=r"'model' for both 'mlp' and 'heads'"):
        mesh_axes(("mlp", "heads"), standard_logical_axis_rules())
    rules = (*standard_logical_axis_rules(), ("heads", None))
    assert mesh_axes(("mlp", "heads"), rules) == P("model", None)


def test_an_axis_without_a_rule_is_named():
    with pytest.raises(ValueError, match=r"rule for the axis 'colour', got batch, "):
        mesh_axes(("colour",), standard_logical_axis_rules())
    rules = standard_logical_axis_rules(additional_rules=[("colour", "data")])
    assert mesh_axes(("colour",), rules) == P("data")


def test_other_dims_are_refused():
    with pytest.raises(ValueError, match="1 or 2, got 3 and 1"):
        standard_logical_axis_rules(3)


def test_replicated_rules_divide_rows_alone():
    rules = replicated_rules()
    assert mesh_axes(("vocab", "embed"), rules) == P(None, None)
    assert mesh_axes(("batch", "heads"), rules) == P("data", None)
    assert len(rules) == len(standard_logical_axis_rules())
