"""An error's traceback ends at the user's line, and has none of wonderland's frames in it."""

import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.core import tracebacks, tree

PACKAGE = os.path.dirname(wl.__file__)
HERE = __file__


@pytest.fixture(autouse=True)
def folded(monkeypatch):
    monkeypatch.delenv("WONDERLAND_TRACEBACK", raising=False)


def lines_of(function, *args, **kwargs):
    """(error, source lines of its traceback, without that of this function)."""
    with pytest.raises(BaseException) as caught:
        function(*args, **kwargs)
    error = caught.value
    frames = traceback.extract_tb(error.__traceback__)
    assert not [frame for frame in frames if frame.filename.startswith(PACKAGE)], traceback.format_exc()
    return error, [frame.line for frame in frames if frame.filename == HERE and frame.name != "lines_of"]


def misshapen(x):
    y = np.sin(x)
    return np.sum(np.reshape(y, (4, 7)))  # the reshape


def mismatched(x):
    return np.sum(x @ np.ones((5, 5)))  # the product


def own(x):
    raise KeyError("mine")  # of the user's own


def decides(x):
    return x if x > 0 else -x  # the decision


X = np.ones(3)
CALLS = {
    "grad": lambda f: wl.grad(f)(X),
    "value_and_grad": lambda f: wl.value_and_grad(f)(X),
    "jvp": lambda f: wl.jvp(f, (X,), (X,)),
    "vjp": lambda f: wl.vjp(f, X),
    "linearize": lambda f: wl.linearize(f, X),
    "vmap": lambda f: wl.vmap(f)(np.ones((2, 3))),
    "jit": lambda f: wl.jit(f)(X),
    "jit with options": lambda f: wl.jit(static_argnames="n")(lambda x, n: f(x))(X, n=1),
    "inspect": lambda f: wl.jit(f).inspect(X),
    "jacobian": lambda f: wl.jacobian(f)(X),
    "jacfwd": lambda f: wl.jacfwd(f)(X),
    "hessian": lambda f: wl.hessian(f)(X),
    "hvp": lambda f: wl.hvp(f, (X,), (X,)),
    "trace": lambda f: wl.trace(f)(X),
    "checkpoint": lambda f: wl.grad(wl.checkpoint(f))(X),
    "lift": lambda f: wl.grad(wl.lift(f))(X),
    "cond": lambda f: wl.cond(True, f, np.sum, X),
    "scan": lambda f: wl.scan(lambda c, x: (c, f(x)), 0.0, np.ones((2, 3))),
    "while_loop": lambda f: wl.while_loop(lambda s: np.all(s < 1), lambda s: s + f(s), 0 * X),
    "custom_jvp": lambda f: wl.grad(with_rule(f))(X),
    "sparse": lambda f: wl.sparse.jacobian(f)(X),
    "pattern": lambda f: wl.sparse.jacobian_pattern(f, X),
    "check_grads": lambda f: wl.testing.check_grads(f, (X,)),
    "explain": lambda f: wl.explain(f, X),
    "nested": lambda f: wl.jit(wl.vmap(wl.grad(lambda x: wl.jit(f)(x))))(np.ones((2, 3))),
    "gradient of a scan": lambda f: wl.jit(wl.grad(lambda x: wl.scan(lambda c, _: (c + f(x), c), 0.0, X)[0]))(X),
}


def with_rule(f):
    g = wl.custom_jvp(lambda x: np.sum(x))
    g.defjvp(lambda primals, tangents: (f(*primals), f(*tangents)))
    return g


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("f", [misshapen, mismatched, own])
def test_errors_of_the_function_end_at_its_line(name, f):
    error, lines = lines_of(CALLS[name], f)
    assert type(error) is (KeyError if f is own else ValueError)
    assert "#" in lines[-1], lines


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (wl.ArgumentError, lambda: wl.grad(np.sin)(X)),
        (wl.ArgumentError, lambda: wl.jvp(np.sin, (X,), ())),
        (wl.ArgumentError, lambda: wl.vjp(np.sin, X)[1]((X, X))),
        (wl.ArgumentError, lambda: wl.linearize(np.sin, X)[1](X, X)),
        (wl.ArgumentError, lambda: wl.jit(1.0)),
        (TypeError, lambda: wl.jit(np.sin)("text")),
        (wl.NoValueError, lambda: wl.vmap(decides)(X)),
        (TypeError, lambda: wl.random.normal("bad")),
        (ValueError, lambda: wl.einops.rearrange(X, "a b -> b a")),
        (IndexError, lambda: wl.at(X)[5].set(1.0)),
        (ValueError, lambda: wl.at(X)[:2].set(np.ones(7))),
        (ValueError, lambda: wl.tree_map(np.add, (X,), [X])),
        (np.linalg.LinAlgError, lambda: wl.jit(np.linalg.cholesky)(-np.eye(2))),
        (np.exceptions.AxisError, lambda: wnp.sum(X, axis=4)),
        (ValueError, lambda: wnp.reshape(X, (2, 2))),
        (np.linalg.LinAlgError, lambda: wnp.linalg.solve(np.ones((2, 2)), X[:2])),
        (wl.LeakedTracerError, lambda: leaked() + 1),
        (wl.LeakedTracerError, lambda: np.sum(leaked())),
        (wl.LeakedTracerError, lambda: np.exp(leaked())),
        (AssertionError, lambda: wl.testing.check_grads(wrong, (X,))),
    ],
)
def test_errors_of_a_call_end_at_it(kind, call):
    error, lines = lines_of(call)
    assert isinstance(error, kind)
    assert "lambda:" in lines[-1] or "the decision" in lines[-1]


def leaked():
    kept = []
    wl.grad(lambda x: kept.append(x) or x * x)(1.0)
    return kept[0]


wrong = wl.custom_jvp(lambda x: np.sum(x * x))
wrong.defjvp(lambda primals, tangents: (np.sum(primals[0] ** 2), np.sum(tangents[0])))


def test_every_frame_of_the_users_is_there_in_order():
    def outer(x):
        return wl.jit(middle)(x) + 1  # outer

    def middle(x):
        return wl.grad(misshapen)(x)  # middle

    _, lines = lines_of(lambda: wl.grad(outer)(X))
    assert [line.rpartition("# ")[2] for line in lines[1:]] == ["outer", "middle", "the reshape"]


def test_frames_of_libraries_stay_where_the_users_code_called_them():
    error, lines = lines_of(lambda: scipy.optimize.minimize(wl.value_and_grad(misshapen), X, jac=True))
    assert "the reshape" in lines[-1]
    assert any("scipy" in frame.filename for frame in traceback.extract_tb(error.__traceback__))


def test_inside_of_a_check_for_broadcasting():
    with wl.warn_on_broadcast():
        for call in (lambda: leaked() + 1, lambda: np.add(leaked(), 1), lambda: wnp.add(X, np.ones(2))):
            _, lines = lines_of(call)
            assert "lambda:" in lines[-1]


def test_chained_errors():
    def converted(x):
        try:
            misshapen(x)
        except ValueError as error:
            raise RuntimeError("from the user") from error

    error, _ = lines_of(lambda: wl.jit(wl.grad(converted))(X))
    cause = traceback.extract_tb(error.__cause__.__traceback__)
    assert "the reshape" in cause[-1].line
    assert not [frame for frame in cause if frame.filename.startswith(PACKAGE)]


def test_all_frames_on_request(monkeypatch):
    monkeypatch.setenv("WONDERLAND_TRACEBACK", "full")
    with pytest.raises(ValueError, match="reshape") as caught:
        wl.jit(wl.grad(misshapen))(X)
    files = {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert {os.path.join(PACKAGE, "compile", "jit.py"), os.path.join(PACKAGE, "core", "functions.py")} <= files


def test_faults_of_ours_keep_their_frames():
    fault = tracebacks.edge(lambda: tree.Structure(None, None, (3,)))  # a number has no leaves: AttributeError
    with pytest.raises(AttributeError) as caught:
        fault()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename == tree.__file__

    # Errors that NumPy raises for users' mistakes as well say how to see the frames.
    error, _ = lines_of(lambda: wl.at(X)[5])
    assert error.__notes__ == ["frames inside wonderland are hidden; WONDERLAND_TRACEBACK=full shows them"]


def public_functions():
    spaces = [wl, wl.random, wl.sparse, wl.einops]
    return [(space, name) for space in spaces for name in space.__all__ if callable(getattr(space, name))]


def test_every_public_function_is_an_edge():
    for space, name in public_functions():
        value = getattr(space, name)
        if not isinstance(value, type):
            assert value.__code__ is tracebacks._EDGE, f"{space.__name__}.{name}: errors leave it with our frames"


def test_public_functions_are_found_by_pickle():
    for space, name in public_functions():
        value = getattr(space, name)
        assert pickle.loads(pickle.dumps(value)) is value


def test_what_people_see(tmp_path):
    """The traceback that Python prints, and where a debugger stops."""
    script = tmp_path / "script.py"
    script.write_text(
        "import pdb, sys, numpy as np, wonderland as wl\n"
        "def loss(x):\n"
        "    return np.sum(x.reshape(2, 2))\n"
        "if len(sys.argv) > 1:\n"
        "    try:\n"
        "        wl.grad(loss)(np.ones(3))\n"
        "    except ValueError as error:\n"
        "        pdb.post_mortem(error.__traceback__)\n"
        "wl.grad(loss)(np.ones(3))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "WONDERLAND_TRACEBACK"}
    environment["PYTHONPATH"] = str(Path(PACKAGE).parent)
    run = lambda *args, text: subprocess.run(
        [sys.executable, str(script), *args], env=environment, capture_output=True, text=True, input=text
    )
    shown = run(text="").stderr
    assert [line.strip() for line in shown.splitlines() if line.startswith("  File")] == [
        f'File "{script}", line 9, in <module>',
        f'File "{script}", line 3, in loss',
    ]
    assert "script.py(3)loss()" in run("debug", text="where\nquit\n").stdout
