"""Programs: recording, capturing, printing, verifying, dropping what isn't used, and long ones."""


import numpy as np
import pytest
from recomputation import peak_of

import wonderland as wl
from wonderland.core.program import (
    Equation,
    Literal,
    Program,
    ProgramError,
    Var,
    eliminate_dead,
    hoist,
    run,
    subprograms,
)
from wonderland.core.types import ArrayType
from wonderland.ops.elementwise import add, mul, sin
from wonderland.ops.reduce import sum as sum_p

VECTOR, SCALAR = ArrayType((3,), float), ArrayType((), float)


def var(type=VECTOR):
    return Var(None, type)


class TestPrinting:
    def test_program(self):
        program = wl.trace(lambda x, w: np.sum(np.sin(x) @ w) * 2.0)(np.ones((2, 3)), np.ones((3, 2), np.float32))
        assert str(program) == (
            "program(a:f64[2,3], b:f32[3,2]):\n"
            "  c:f64[2,3] = sin a\n"
            "  d:f64[2,2] = dot[contract=((1),(0)) batch=((),())] c b\n"
            "  e:f64[]    = sum[axes=(0,1)] d\n"
            "  f:f64[]    = mul e 2.0\n"
            "  return f"
        )

    def test_constants_slices_and_dtypes(self):
        w = np.arange(3.0)
        program = wl.trace(lambda x: (x[::-1] * w)[1:].astype(np.float32))(w)
        text = str(program)
        assert ":= [0. 1. 2.]" in text
        assert "slice[index=(2::-1)]" in text and "slice[index=(1:3)]" in text and "convert[dtype=float32]" in text
        assert "array of 1000 values" in str(wl.trace(lambda x: x + np.arange(1000.0))(1.0))

    def test_weak_types_and_nested_programs(self):
        text = str(wl.trace(lambda x: wl.cond(x > 0, np.sin, lambda x: -x, x))(1.0))
        assert text.startswith("program(a:f64*[]):") and text.count("program(") == 3 and "neg" in text

    def test_many_names(self):
        def f(x):
            for _ in range(30):
                x = np.sin(x)
            return x

        lines = str(wl.trace(f)(np.float64(1))).split("\n")
        assert lines[-1] == "  return ae" and lines[26].lstrip().startswith("aa:")

    def test_equation(self):
        (equation,) = wl.trace(np.sin)(np.ones(3)).equations
        assert repr(equation) == "a:f64[3] = sin b"


class TestRecording:
    def test_nothing_is_computed(self):
        program = wl.trace(lambda x: 1 / (x - x))(np.ones(3))
        assert [e.primitive.name for e in program.equations] == ["sub", "div"]

    def test_runs_at_every_level(self):
        program = wl.trace(lambda x: np.sin(x) * x)(1.5)
        f = lambda x: wl.core.tracer.Tracer(run(program, (x._get(),))[0])
        assert np.isclose(wl.grad(f)(1.5), np.cos(1.5) * 1.5 + np.sin(1.5))
        np.testing.assert_allclose(wl.vmap(f)(np.arange(3.0)), np.sin(np.arange(3)) * np.arange(3))

    def test_arguments_and_results_as_outputs(self):
        program = wl.verify(wl.trace(lambda x, y: (y, 3.0, x, np.ones(2)))(1.0, 2.0))
        outs = program(5.0, 6.0)
        assert outs[:3] == (6.0, 3.0, 5.0) and outs[3].tolist() == [1.0, 1.0]

    def test_values_that_are_equal_everywhere_stay_numbers(self):
        program = wl.trace(lambda x: x + np.broadcast_to(2.0, (1000,)))(np.ones(1000))
        assert not program.constants

    def test_unused_equations_and_constants_are_dropped(self):
        w = np.arange(5.0)

        def f(x):
            np.sum(np.exp(x) * w)
            return np.sin(x)

        program = wl.trace(f)(np.ones(5))
        assert [e.primitive.name for e in program.equations] == ["sin"] and not program.constants

    def test_subprograms_are_found(self):
        program = wl.trace(lambda x: wl.cond(x > 0, np.sin, np.cos, x))(1.0)
        assert [len(list(subprograms(e))) for e in program.equations] == [0, 2]

    def test_each_value_is_dropped_after_its_last_use(self):
        def f(x):
            for _ in range(50):
                x = x + 1.0
            return x

        x = np.zeros(100_000)
        program = wl.trace(f)(x)
        assert peak_of(run, program, (x,)) < 4 * x.nbytes


class TestCapture:
    def test_writable_arrays_are_copied_by_derivatives(self):
        """SEMANTICS 2: the gradient sees w as it was at each use."""

        def f(x):
            w = np.ones(3)
            a = x * w
            w *= 5
            return np.sum(a * w)

        assert wl.grad(f)(np.ones(3)).tolist() == [5.0, 5.0, 5.0]
        np.testing.assert_array_equal(wl.jvp(f, (np.ones(3),), (np.ones(3),)), (15.0, 15.0))
        _, push = wl.linearize(f, np.ones(3))
        assert push(np.ones(3)) == 15.0

    def test_and_while_recording(self):
        def f(x):
            w = np.ones(3)
            a = x * w
            w *= 5
            return np.sum(a * w)

        assert wl.trace(f)(np.ones(3))(np.ones(3)) == (15.0,)

    def test_a_change_after_the_derivative_was_taken_is_not_seen(self):
        w, x = np.ones(3), np.ones(3)
        _, pull = wl.vjp(lambda x: x * w, x)
        _, pull_square = wl.vjp(lambda x: x * x, x)
        w *= 5
        x *= 7
        assert pull(np.ones(3))[0].tolist() == [1.0, 1.0, 1.0]
        assert pull_square(np.ones(3))[0].tolist() == [2.0, 2.0, 2.0]

    def test_recorded_functions_hold_arrays_by_reference(self):
        """SEMANTICS 5: a later change of a captured writable array is seen; a changed read-only one can't be."""
        w = np.ones(3)
        program = wl.trace(lambda x: x * w)(np.ones(3))
        w[0] = 5.0
        assert program(np.ones(3))[0].tolist() == [5.0, 1.0, 1.0]

    def test_captured_once(self):
        w = np.arange(3.0)
        program = wl.trace(lambda x: x * w + w)(np.ones(3))
        assert len(program.constants) == 1

    def test_outer_levels_are_captured_and_hoisted(self):
        def f(x):
            program = wl.trace(lambda y: y * x)(2.0)
            closed, values = hoist(program)
            assert not closed.constants and len(closed.inputs) == 2
            wl.verify(closed)
            return wl.core.tracer.Tracer(run(closed, (*values, 3.0))[0])

        assert wl.grad(f)(2.0) == 3.0

    def test_perturbations_are_not_confused(self):
        assert wl.grad(lambda x: x * wl.grad(lambda y: x + y)(1.0))(2.0) == 1.0
        inner = lambda x: wl.jvp(lambda y: x * y, (1.0,), (1.0,))[1]
        assert wl.jvp(lambda x: x * inner(x), (3.0,), (1.0,))[1] == 6.0


class TestVerify:
    def check(self, program, message, **kwargs):
        with pytest.raises(ProgramError, match=message):
            wl.verify(program, **kwargs)

    def test_returns_the_program(self):
        program = wl.trace(np.sin)(1.0)
        assert wl.verify(program) is program

    def test_wrong_type(self):
        x, y = var(), var(SCALAR)
        self.check(Program([x], [Equation(sin, (x,), (y,), {})], [y]), r"sin should give .*f64\[3\].*not .*f64\[\]")

    def test_undefined_variable(self):
        x, y, z = var(), var(), var()
        self.check(Program([x], [Equation(add, (x, z), (y,), {})], [y]), "add reads a variable .* that isn't defined")

    def test_undefined_output(self):
        self.check(Program([var()], [], [var()]), "output .* isn't defined")

    def test_assigned_twice(self):
        x, y = var(), var()
        twice = Equation(sin, (x,), (y,), {})
        self.check(Program([x], [twice, twice], [y]), "assigned twice")
        self.check(Program([x, x], [], [x]), "defined twice")

    def test_wrong_constant(self):
        x = var()
        self.check(Program([], [], [x], [(x, np.ones(4))]), r"constant .*f64\[3\].* has a value of type f64\[4\]")

    def test_constants_inside(self):
        x, y, outside = var(), var(), var()
        cond = wl.core.primitive.registry["cond"]
        for value, fault in ((np.arange(3.0), None), (outside, "refers to values outside")):
            branch = wl.trace(lambda x: x * np.arange(3.0))(np.arange(3.0))
            branch = Program(branch.inputs, branch.equations, branch.outputs, [(branch.constants[0][0], value)])
            equation = Equation(cond, (Literal(True), x), (y,), {"branches": (branch, branch)})
            program = Program([x], [equation], [y])
            if fault:
                self.check(program, fault)
            else:
                wl.verify(program)

    def test_faults_inside_are_found(self):
        x, y = var(), var()
        bad = Program([x], [], [y])
        cond = wl.core.primitive.registry["cond"]
        inner, out = var(), var()
        equation = Equation(cond, (Literal(True), inner), (out,), {"branches": (bad, bad)})
        self.check(Program([inner], [equation], [out]), "isn't defined")

    def test_linearity(self):
        t, d, y, z = var(), var(), var(), var(SCALAR)
        good = [Equation(mul, (t, d), (y,), {}), Equation(sum_p, (y,), (z,), {"axes": (0,)})]
        wl.verify(Program([d, t], good, [z]), linear_in=[t])
        for equation in (Equation(sin, (t,), (y,), {}), Equation(mul, (t, t), (y,), {})):
            self.check(Program([d, t], [equation], [y]), "isn't linear in operands", linear_in=[t])
        chained = [Equation(mul, (t, d), (y,), {}), Equation(mul, (y, t), (d2 := var(),), {})]
        self.check(Program([d, t], chained, [d2]), "isn't linear", linear_in=[t])

    def test_the_message_shows_the_equations_around(self):
        program = wl.trace(lambda x: np.sum(np.cos(np.sin(x)) * 2))(np.ones(3))
        broken = list(program.equations)
        broken[2] = Equation(mul, broken[2].inputs, (var(SCALAR),), {})
        with pytest.raises(ProgramError) as caught:
            wl.verify(Program(program.inputs, broken, program.outputs))
        lines = str(caught.value).split("\n")
        assert len(lines) == 5 and [line.startswith("-->") for line in lines] == [False, False, False, True, False]


def test_eliminate_dead():
    x, y, z = var(), var(), var()
    w = var()
    equations = [Equation(sin, (x,), (y,), {}), Equation(add, (x, w), (z,), {})]
    kept = eliminate_dead(Program([x], equations, [y], [(w, np.ones(3))]))
    assert [e.primitive.name for e in kept.equations] == ["sin"] and not kept.constants and kept.inputs == (x,)


class TestPattern:
    """`wl.sparse.jacobian_pattern`: what a Program's outputs can depend on, at any point."""

    def test_neighbours(self):
        f = lambda x: x[1:] - 2.0 * x[:-1] ** 2
        pattern = wl.sparse.jacobian_pattern(f, np.zeros(5))
        assert (pattern.format, pattern.dtype, pattern.shape) == ("csr", bool, (4, 5))
        assert np.array_equal(pattern.toarray(), np.eye(4, 5) + np.eye(4, 5, 1) > 0)

    def test_holds_for_all_values(self):
        f = lambda x: np.where(x[:2] > 0, x[:2], x[2:])
        for x in (np.ones(4), -np.ones(4)):
            assert wl.sparse.jacobian_pattern(f, x).toarray().astype(int).tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]
        with pytest.raises(wl.NoValueError):
            wl.sparse.jacobian_pattern(lambda x: x if x[0] > 0 else -x, np.ones(2))

    def test_trees_are_flattened_in_order(self):
        f = lambda p, n: (p["b"][::-1] * n, np.sum(p["a"] * wl.stop_gradient(p["b"][0])))
        pattern = wl.sparse.jacobian_pattern(f, {"a": np.ones(2), "b": np.ones(2)}, 3).toarray().astype(int)
        assert pattern.tolist() == [[0, 0, 0, 1, 0], [0, 0, 1, 0, 0], [1, 1, 0, 0, 0]]

    def test_constant_and_empty(self):
        assert wl.sparse.jacobian_pattern(lambda x: np.ones(3), np.ones(2)).nnz == 0
        assert wl.sparse.jacobian_pattern(lambda x: x * 2, np.ones(0)).shape == (0, 0)


class TestLong:
    """Nothing recurses along a Program."""

    def test_gradient_of_a_long_chain(self):
        def f(x):
            for _ in range(100_000):
                x = x + 1.0
            return x

        assert wl.grad(f)(0.0) == 1.0

    def test_forward_mode_and_recording(self):
        def f(x):
            for _ in range(20_000):
                x = -x
            return x

        assert wl.jvp(f, (2.0,), (1.0,)) == (2.0, 1.0)
        program = wl.trace(f)(2.0)
        assert len(program.equations) == 20_000 and program(2.0) == (2.0,)

    def test_writing_element_by_element(self):
        n = 2000

        def f(x):
            x = x * 1.0
            for i in range(n - 1):
                x[i + 1] = x[i + 1] + x[i]
            return x[-1]

        np.testing.assert_array_equal(wl.grad(f)(np.ones(n)), np.ones(n))
