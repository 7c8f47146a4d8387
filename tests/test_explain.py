"""`wl.explain`, the table of values, tangents and adjoints, and `to_dot`, the graph of a Program."""

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.studio import explain, to_dot


def test_the_example_of_the_notes():
    """A1.9-1.12: x, s1 = x, s2 = x^2, s3 = s1 + s2 at x = 3."""
    table = explain(lambda x: x + x**2, 3.0)
    assert [row.tangent for row in table.rows] == [1, 1, 6, 7]
    assert [row.adjoint for row in table.rows] == [7, 1, 1, 1]
    assert [row.value for row in table.rows] == [3, 3, 9, 12]
    assert table.value == 12
    assert str(table).splitlines() == [
        "equation            value  tangent  adjoint",
        "------------------  -----  -------  -------",
        "x:f64*[]            3      1        7",
        "a:f64*[] = x        3      1        1",
        "b:f64*[] = pow x 2  9      6        1",
        "c:f64*[] = add a b  12     7        1",
    ]


def chain(x, w):
    h = np.tanh(w @ x)
    return np.sum(h * np.exp(-h)) + x[0]


X, W = np.array([0.3, -0.5, 0.8]), np.arange(6.0).reshape(2, 3) / 4 - 0.5


def test_tangents_and_adjoints_are_those_of_jvp_and_grad():
    direction = (np.array([1.0, 0.5, -1.0]), np.cos(W))
    table = explain(chain, X, W, tangent=direction)
    value, tangent = wl.jvp(chain, (X, W), direction)
    assert table.rows[-1].value == value and np.isclose(table.rows[-1].tangent, tangent, rtol=1e-14)
    by_name = {row.name: row for row in table.rows}
    for name, gradient in zip("xw", wl.grad(chain, argnums=(0, 1))(X, W), strict=True):
        np.testing.assert_allclose(by_name[name].adjoint, gradient, rtol=1e-14)


def test_each_row_has_the_derivative_of_what_follows_it():
    """The adjoint of a row is the gradient of the rest of the program with respect to it."""
    table = explain(chain, X, W, argnums=0)
    rows = {re.match(r".* = (\w+)", row.equation)[1]: row for row in table.rows if " = " in row.equation}
    h = np.tanh(W @ X)
    np.testing.assert_allclose(rows["tanh"].adjoint, np.exp(-h) * (1 - h), rtol=1e-14)
    np.testing.assert_allclose(rows["tanh"].tangent, (1 - h**2) * (W @ np.ones(3)), rtol=1e-14)
    np.testing.assert_allclose(rows["exp"].adjoint, h, rtol=1e-14)
    np.testing.assert_allclose(rows["dot"].adjoint, (1 - h**2) * np.exp(-h) * (1 - h), rtol=1e-14)


def test_every_adjoint_and_tangent_of_random_chains_pairs_to_one_number():
    """Along any cut of a chain, <adjoint, tangent> is the derivative of the result."""
    table = explain(lambda x: np.log(np.sin(np.exp(x) + 2.0) + 3.0) ** 3, 0.7)
    expected = table.rows[-1].tangent
    for row in table.rows:
        assert np.isclose(row.adjoint * row.tangent, expected, rtol=1e-12)


def test_python_control_flow_shows_the_path_taken():
    def f(x):
        while x < 10:
            x = x * x if x > 2 else x + 1
        return x

    table = explain(f, 1.5)
    assert [row.equation.partition(" = ")[2].partition(" ")[0] for row in table.rows] == ["", "add", "mul", "mul"]
    assert [row.value for row in table.rows] == [1.5, 2.5, 6.25, 39.0625]
    assert table.rows[0].adjoint == 4 * 2.5**3


def test_integers_constants_and_what_is_cut_off_have_no_derivative():
    table = explain(lambda x, n, c: np.sum(wl.stop_gradient(x) * n + np.arange(3.0) * x + c), X, 3, 2.0, argnums=0)
    rows = {row.name: row for row in table.rows}
    assert rows["n"].tangent is None and rows["n"].adjoint is None
    assert rows["c"].tangent is None
    constants = [row for row in table.rows if row.equation.endswith(":= constant")]
    assert len(constants) == 1 and constants[0].adjoint is None
    np.testing.assert_array_equal(rows["x"].adjoint, [0, 1, 2])
    assert next(row for row in table.rows if "stop_gradient" in row.equation).adjoint is None


def test_an_argument_used_once_or_late_has_one_row():
    names = [row.name for row in explain(lambda x, b: np.sin(x) * b, X, 2.0).rows]
    assert names == ["x", "b", "a", "c"]


def test_control_flow_is_one_row_and_jitted_functions_are_opened():
    def heron(a):
        return wl.while_loop(lambda x: np.abs(x * x - a) > 1e-12, lambda x: (x + a / x) / 2, a)

    table = explain(heron, 2.0)
    scans = [row for row in table.rows if "scan" in row.equation]
    assert len(scans) == 1 and "\n" not in scans[0].equation
    assert np.isclose(table.rows[0].adjoint, 0.5 / np.sqrt(2))
    plain, jitted = (explain(f, 3.0) for f in (lambda x: np.sin(x) * x, wl.jit(lambda x: np.sin(x) * x)))
    assert [row.equation for row in plain.rows] == [row.equation for row in jitted.rows]
    assert [row.adjoint for row in plain.rows] == [row.adjoint for row in jitted.rows]


def test_several_outputs_of_one_equation():
    def f(x):
        total, path = wl.scan(lambda c, v: (c + v, c * v), 0.0, x)
        return total * np.sum(path)

    table = explain(f, X)
    assert any(row.equation.endswith("of the same") for row in table.rows)
    np.testing.assert_allclose(table.rows[0].adjoint, wl.grad(f)(X), rtol=1e-13)


def test_trees_names_and_star_arguments():
    def f(params, *rest, a=1.0):
        return params["w"] @ params["layers"][0] * rest[0] * a

    table = explain(f, {"w": X, "layers": [X, (X,)]}, 2.0)
    names = [row.name for row in table.rows]
    assert names[:4] == ["params['layers'][0]", "params['layers'][1][0]", "params['w']", "rest[0]"]
    np.testing.assert_array_equal(table.rows[1].adjoint, 0.0)
    clash = explain(lambda a, c: np.sin(a) + c, 1.0, 2.0)
    assert len({row.name for row in clash.rows}) == len(clash.rows)


def test_seeds():
    table = explain(lambda x: np.sin(x), X, cotangent=np.array([1.0, 0.0, 2.0]), tangent=np.array([0.0, 1.0, 0.0]))
    np.testing.assert_allclose(table.rows[0].adjoint, [np.cos(X[0]), 0, 2 * np.cos(X[2])])
    np.testing.assert_allclose(table.rows[1].tangent, [0, np.cos(X[1]), 0])
    pair = explain(lambda x: (x * 2, {"b": x * x}), 3.0, cotangent=(1.0, {"b": 10.0}))
    assert pair.rows[0].adjoint == 62 and pair.value == (6.0, {"b": 9.0})
    twice = explain(lambda x: (np.exp(x), np.exp(x) * 0 + x), 0.0)
    assert twice.rows[0].adjoint == 2
    single = explain(lambda x: np.sum(x**2), X.astype(np.float32))
    assert all(row.adjoint.dtype == np.float32 for row in single.rows)
    z = explain(lambda z: np.abs(z) ** 2, 1 + 2j)
    assert z.rows[0].adjoint == 2 + 4j


def test_gradients_and_lifted_code_can_be_explained():
    table = explain(wl.grad(lambda x: x**3), 2.0)
    assert table.value == 12 and table.rows[0].adjoint == 12

    def fill(x):
        out = np.zeros(3)
        out[1] = x[0] * x[1]
        out *= 2.0
        return np.sum(out)

    table = explain(wl.lift(fill), X)
    np.testing.assert_allclose(table.rows[0].adjoint, [2 * X[1], 2 * X[0], 0])


def test_arguments_are_left_alone():
    x = X.copy()

    def f(x):
        x *= 2
        return np.sum(x)

    explain(f, x)
    np.testing.assert_array_equal(x, X)


def test_wrong_arguments():
    with pytest.raises(ArgumentError, match=r"2\.0 instead of 2"):
        explain(lambda n: n * 2, 2)
    with pytest.raises(ArgumentError, match=r"tangent has shape \(2,\), expected \(3,\)"):
        explain(np.sum, X, tangent=np.ones(2))
    with pytest.raises(ArgumentError, match=r"cotangent has shape \(1,\), expected \(3,\)"):
        explain(np.sin, X, cotangent=np.ones(1))
    with pytest.raises(ArgumentError, match="tuple with one for each"):
        explain(chain, X, W, tangent=1.0)
    with pytest.raises(ArgumentError, match="structure"):
        explain(lambda x: (x, x), X, cotangent=X)
    with pytest.raises(ArgumentError, match="call it outside"):
        wl.grad(lambda x: explain(np.sin, x).value)(1.0)
    with pytest.raises(ArgumentError, match="argnums"):
        explain(np.sum, X, argnums=3)


def test_long_and_large_tables_are_cut():
    def f(x):
        for _ in range(100):
            x = np.sin(x)
        return np.sum(x)

    table = explain(f, np.ones((40, 30)), limit=10)
    assert len(table.rows) == 102
    lines = str(table).splitlines()
    assert len(lines) == 13 and "... 92 more rows" in lines
    assert lines[2].startswith("x:f64[40,30]") and "40x30: 1 1 1 ..." in lines[2]
    assert lines[-1].split()[1:3] == ["=", "sum[axes=(0,1)]"]
    assert max(map(len, lines)) < 200
    assert repr(table) == str(table)


def test_html():
    page = explain(lambda x: np.where(x > 0, x, 0.0) + x, X)._repr_html_()
    root = ElementTree.fromstring(page)
    assert root.tag == "table"
    cells = [[cell.text or "" for cell in row] for row in root.iter("tr")]
    assert cells[0] == ["equation", "value", "tangent", "adjoint"] and len(cells) > 4
    odd = explain(lambda p: p["<w>"] * 2, {"<w>": X})._repr_html_()
    assert "&lt;w&gt;" in odd and "<w>" not in odd
    many = explain(lambda x: np.sum(x) + np.sum(x * 2) + np.sum(x * 3), X, limit=4)._repr_html_()
    assert "more rows" in many


# Graphs.


def parse(dot):
    """Nodes (label) and edges of a graph of ours, by its lines; braces and quotes must match."""
    assert dot.count("{") == dot.count("}")
    nodes = dict(re.findall(r'^\s*(\w+) \[label="((?:[^"\\]|\\.)*)"', dot, re.M))
    edges = re.findall(r"^\s*(\w+) -> (\w+)", dot, re.M)
    return nodes, edges


def test_the_graph_of_the_notes():
    nodes, edges = parse(to_dot(wl.trace(lambda x: x + x**2)(3.0)))
    labels = [label.replace("\\n", " ") for label in nodes.values()]
    assert labels == ["a f64*[]", "pow a 2 b:f64*[]", "add a b c:f64*[]", "return c f64*[]"]
    assert edges == [("n_input0", "n_e0"), ("n_input0", "n_e1"), ("n_e0", "n_e1"), ("n_e1", "n_out0")]


def program_with_everything():
    table = np.arange(12.0).reshape(4, 3)

    def f(w, a):
        y = wl.while_loop(lambda s: s * s - a > 1e-9, lambda s: (s + a / s) / 2, a)
        return np.sum(np.tanh(table @ w)) * y, wl.cond(y > 1, lambda q: q, lambda q: 2 * q, y), 3.0

    return wl.trace(f)(np.ones(3), 2.0)


def test_constants_nested_programs_and_literal_outputs():
    program = program_with_everything()
    dot = to_dot(program, name='a "quoted\\ name"')
    nodes, edges = parse(dot)
    assert dot.startswith('digraph "a \\"quoted\\\\ name\\"" {')
    assert dot.count("subgraph cluster_") == 4
    assert {name for edge in edges for name in edge} <= {*nodes, *re.findall(r"(\w+) \[shape=point", dot)}
    assert sum("return" in label for label in nodes.values()) == 3 + 4
    assert any("constant" in name for name in nodes)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz isn't installed")
def test_graphviz_reads_it():
    for program in (program_with_everything(), wl.trace(lambda x: x)(1.0), wl.trace(lambda: 2.0)()):
        done = subprocess.run(
            ["dot", "-Tsvg"], input=to_dot(program, "x\ny"), capture_output=True, text=True, check=True
        )
        assert "<svg" in done.stdout and not done.stderr
