"""Every primitive has every rule, or says why it can't; and a row in the op table."""

import pytest

from wonderland.core.primitive import registry
from wonderland.testing import op_table
from wonderland.testing.op_table import TABLE

op_table.load()

SLOTS = ("evaluate", "infer", "jvp", "transpose", "batch", "pattern")


def has_rule(primitive, slot):
    if slot == "jvp":  # derived for the linear ones
        return bool(primitive.jvp or primitive.linear or primitive.bilinear)
    return getattr(primitive, slot) is not None


def needs_rule(primitive, slot):
    # Only linear operations are ever transposed: an operation that has a jvp rule of its own and no linear operand
    # leaves others in the linear Program.
    return slot != "transpose" or bool(primitive.linear or primitive.bilinear or primitive.linearize)


@pytest.mark.parametrize("name", sorted(registry))
@pytest.mark.parametrize("slot", SLOTS)
def test_rule(name, slot):
    primitive = registry[name]
    if needs_rule(primitive, slot) and not has_rule(primitive, slot):
        assert primitive.impossible.get(slot), f'{name} has no {slot} rule, and no impossible={{"{slot}": reason}}'


@pytest.mark.parametrize("name", sorted(registry))
def test_what_is_impossible_is_not_there(name):
    primitive = registry[name]
    assert set(primitive.impossible) <= {*SLOTS, "lower"}, f"{name} declares unknown rules impossible"
    there = [slot for slot in primitive.impossible if has_rule(primitive, slot)]
    assert not there, f"{name} has rules that it declares impossible: {there}"
    assert all(isinstance(why, str) and why for why in primitive.impossible.values())


@pytest.mark.parametrize("name", sorted(registry))
def test_row_in_the_table(name):
    assert any(row.name == name for row in TABLE), f"add a row for {name} to a file of wonderland/testing/rows"


def test_the_table_has_no_rows_for_nothing():
    assert {row.name for row in TABLE} <= set(registry)


def test_names_of_rows_differ():
    names = [str(row) for row in TABLE]
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)


@pytest.mark.parametrize("name", sorted(registry))
def test_facts_fit_together(name):
    p = registry[name]
    assert not (p.linear and p.bilinear), f"{name} claims to be linear and bilinear"
    if p.update is not None:
        assert p.linear, f"{name} is an update: its tangent is updated by the same rule, so it must be linear"
