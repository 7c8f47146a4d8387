"""Random Programs, their NumPy evaluation and their compiled form."""

import numpy as np

import wonderland as wl
from wonderland.compile.stages import compile_program
from wonderland.core import tree
from wonderland.core.level import Traced
from wonderland.core.program import Record, run, verify
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType
from wonderland.ops import dot as dot_ops
from wonderland.ops import elementwise as ew
from wonderland.ops import index as index_ops
from wonderland.ops import reduce as reduce_ops
from wonderland.ops import shape as shape_ops


def record(f, *arrays):
    """The Program of a function on arrays of these types."""
    with Record() as level:
        inputs = [level.variable(ArrayType(np.shape(a), np.asarray(a).dtype)) for a in arrays]
        outputs = f(*inputs)
        outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        return verify(level.finish(inputs, outputs))


def assert_close(got, want, what="", single=False):
    """Types equal, and values up to a small multiple of rounding, relative to the size of the array."""
    want = np.asarray(want)
    got = np.asarray(got)
    assert got.shape == want.shape and got.dtype == want.dtype, (what, got.shape, want.shape, got.dtype, want.dtype)
    if want.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    finite = np.isfinite(want)
    scale = np.max(np.abs(want[finite]), initial=1.0)
    tolerance = 3e-5 if single or want.dtype.itemsize <= 4 else 1e-12
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def check(f, *arrays, written=None):
    """Compile a function, compare with NumPy; returns the compiled Program."""
    program = record(f, *arrays)
    with np.errstate(all="ignore"):
        want = run(program, arrays)
    compiled = compile_program(program, written)
    for _ in range(2):  # the second call finds a used arena
        got = compiled(*arrays)
        assert len(got) == len(want)
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_close(g, w, f"output {i} of\n{program}")
    return compiled


class Generator:
    """Writes a random Program equation by equation; values stay moderate so that errors do."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.dims = [int(self.rng.choice([1, 2, 3, 5, 17, 40])) for _ in range(3)]
        self.float = np.dtype(self.rng.choice(["f4", "f8"]))
        self.values = []

    def shape(self, most=3):
        return tuple(int(n) for n in self.rng.choice(self.dims, self.rng.integers(0, most + 1)))

    def array(self, shape, dtype):
        if dtype.kind == "f":
            return self.rng.uniform(-1, 1, shape).astype(dtype)
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        return self.rng.integers(0, 5, shape).astype(dtype)

    def dtype(self):
        return np.dtype(self.rng.choice([self.float.str] * 3 + ["i4", "i8", "?"]))

    def pick(self, kinds="fib"):
        fitting = [v for v in self.values if v.type.dtype.kind in kinds]
        return fitting[self.rng.integers(len(fitting))] if fitting else None

    def program(self, n_equations):
        """(Program, arguments)."""
        rng = self.rng
        arrays = [self.array(self.shape(), self.dtype()) for _ in range(3)]
        arrays.append(self.array(self.shape(), self.float))
        with Record() as level:
            inputs = [level.variable(ArrayType(a.shape, a.dtype)) for a in arrays]
            self.values = list(inputs)
            for _ in range(n_equations):
                made = self.equation()
                if made is not None and made.type.size <= 20000:
                    self.values.append(made)
            outputs = [self.values[i] for i in rng.integers(0, len(self.values), 4)] + self.values[-1:]
            program = level.finish(inputs, outputs)
        return verify(program), arrays

    def equation(self):
        kind = self.rng.choice(
            ["unary", "binary", "binary", "where", "compare", "reduce", "spread", "transpose", "reshape",
             "slice", "convert", "dot", "gather", "scatter", "scatter_slice", "row"]
        )  # fmt: skip
        return getattr(self, f"make_{kind}")()

    def moderate(self, x):
        return ew.tanh(x) if x.type.dtype.kind == "f" else x

    def partner(self, x, kinds):
        """A value that broadcasts with x."""
        for _ in range(6):
            y = self.pick(kinds)
            if y is None:
                return None
            try:
                np.broadcast_shapes(x.shape, y.shape)
            except ValueError:
                continue
            return y
        return x if x.type.dtype.kind in kinds else None

    def make_unary(self):
        x = self.pick("f")
        op = self.rng.choice(["sin", "cos", "exp", "neg", "abs", "sqrt", "sign"])
        if op == "exp":
            return ew.exp(ew.neg(ew.abs(x)))
        if op == "sqrt":
            return ew.sqrt(ew.abs(x))
        return getattr(ew, op)(x)

    def make_binary(self):
        x = self.pick("fi")
        y = self.partner(x, "fi") if self.rng.random() < 0.8 else float(self.rng.integers(-3, 4))
        if y is None:
            return None
        op = self.rng.choice(["add", "sub", "mul", "maximum", "minimum", "div"])
        if op == "div":
            return self.moderate(ew.div(x, ew.add(ew.mul(y, y), 1.0)))
        out = getattr(ew, op)(x, y)
        if out.type.dtype.kind == "f" and out.type.dtype != self.float:
            out = shape_ops.convert(out, dtype=self.float)
        return self.moderate(out) if op == "mul" else out

    def make_where(self):
        c, x = self.pick("b"), self.pick("fi")
        y = self.partner(x, "fi")
        if c is None or y is None:
            return None
        try:
            np.broadcast_shapes(c.shape, x.shape, y.shape)
        except ValueError:
            return None
        return ew.where(c, x, y)

    def make_compare(self):
        # Of integers: floats that are equal up to rounding would decide either way.
        x = self.pick("ib")
        y = None if x is None else self.partner(x, "ib")
        return None if y is None else getattr(ew, str(self.rng.choice(["eq", "lt", "ge", "ne"])))(x, y)

    def axes(self, rank):
        count = self.rng.integers(0, rank + 1)
        return tuple(sorted(int(a) for a in self.rng.choice(rank, count, replace=False))) if rank else ()

    def make_reduce(self):
        x = self.pick("fi")
        op = reduce_ops.sum if self.rng.random() < 0.7 else reduce_ops.max
        out = op(x, axes=self.axes(len(x.shape)))
        return self.moderate(out)

    def make_row(self):
        """Something like a softmax or a normalisation."""
        x = self.pick("f")
        axes = self.axes(len(x.shape))
        shifted = ew.sub(x, reduce_ops.spread(reduce_ops.max(x, axes=axes), x.shape, axes))
        e = ew.exp(shifted)
        total = reduce_ops.sum(e, axes=axes)
        if self.rng.random() < 0.3:
            return ew.log(total)
        return ew.div(e, reduce_ops.spread(total, x.shape, axes))

    def make_spread(self):
        x = self.pick()
        if len(x.shape) > 2:
            return None
        return shape_ops.broadcast(x, shape=(int(self.rng.choice(self.dims)), *x.shape))

    def make_transpose(self):
        x = self.pick()
        return shape_ops.transpose(x, permutation=tuple(int(p) for p in self.rng.permutation(len(x.shape))))

    def make_reshape(self):
        x = self.pick()
        shape = list(x.shape)
        if len(shape) > 1 and self.rng.random() < 0.7:
            i = self.rng.integers(len(shape) - 1)
            shape[i : i + 2] = [shape[i] * shape[i + 1]]
        else:
            shape.insert(self.rng.integers(len(shape) + 1), 1)
        return shape_ops.reshape(x, shape=tuple(shape)) if len(shape) < 5 else None

    def index(self, shape):
        found = []
        for n in shape:
            choice = self.rng.integers(4)
            if choice == 0:
                found.append(int(self.rng.integers(n)))
            elif choice == 1:
                found.append(slice(n - 1, None, -1))
            else:
                start = int(self.rng.integers(n))
                found.append(slice(start, n, int(self.rng.integers(1, 3))))
        return tuple(found)

    def make_slice(self):
        x = self.pick()
        return index_ops.slice(x, index=self.index(x.shape))

    def make_convert(self):
        x = self.pick()
        to = self.dtype()
        if x.type.dtype.kind == "f" and to.kind != "f":
            return None  # truncation of numbers that differ by rounding
        return shape_ops.convert(x, dtype=to)

    def make_dot(self):
        x, y = self.pick("f"), self.pick("f")
        pairs = [(i, j) for i, n in enumerate(x.shape) for j, m in enumerate(y.shape) if n == m]
        self.rng.shuffle(pairs)
        contract, batch = ([], []), ([], [])
        for i, j in pairs:
            if i in contract[0] + batch[0] or j in contract[1] + batch[1]:
                continue
            side = contract if self.rng.random() < 0.6 else batch
            if side is batch and self.rng.random() < 0.5:
                continue
            side[0].append(int(i))
            side[1].append(int(j))
        params = {"contract": tuple(map(tuple, contract)), "batch": tuple(map(tuple, batch))}
        out = dot_ops.dot(x, y, **params)
        return self.moderate(ew.mul(out, 0.1)) if out.type.size <= 20000 and len(out.shape) < 5 else None

    def indices(self, x, n):
        lead = (3,) if self.rng.random() < 0.6 else (2, 3) if self.rng.random() < 0.5 else ()
        axes = tuple(sorted(int(a) for a in self.rng.choice(len(x.shape), n, replace=False)))
        arrays = [self.rng.integers(-x.shape[a], x.shape[a], lead) for a in axes]
        return axes, [a if a.shape else np.int64(a) for a in arrays]

    def make_gather(self):
        x = self.pick()
        if not x.shape:
            return None
        axes, arrays = self.indices(x, self.rng.integers(1, len(x.shape) + 1))
        return index_ops.gather(x, *arrays, axes=axes)

    def make_scatter(self):
        x = self.pick("f")
        if not x.shape:
            return None
        axes, arrays = self.indices(x, 1)
        kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        u = self.array((*arrays[0].shape, *kept), np.dtype(x.type.dtype))
        mode = str(self.rng.choice(["add", "set"]))
        return index_ops.scatter(x, *arrays, u if u.shape else u[()], axes=axes, mode=mode)

    def make_scatter_slice(self):
        x = self.pick("f")
        index = self.index(x.shape)
        part = index_ops.slice(x, index=index)
        u = ew.mul(part, 0.5)
        return index_ops.scatter_slice(x, u, index=index, mode=str(self.rng.choice(["add", "set"])))


def compare(seed, n_equations):
    """One random Program against NumPy."""
    return compare_with(*Generator(seed).program(n_equations), f"seed {seed}")


def compare_with(program, arrays, what):
    """A Program against NumPy; returns it compiled."""
    with np.errstate(all="ignore"):
        want = run(program, arrays)
    compiled = compile_program(program)
    for _ in range(2):
        got = compiled(*arrays)
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_close(g, w, f"{what}, output {i} of\n{program}", is_single(program))
    return compiled


def is_single(program):
    """Does single precision occur, so that it bounds the accuracy of all that follows?"""
    values = [*program.inputs, *(v for e in program.equations for v in e.outputs)]
    return any(v.type.dtype in (np.float32, np.complex64) for v in values)


def compare_in_control_flow(seed):
    """A random Program as the body of a scan, a while loop or a branch, or under the gradient of a scan."""
    rng, generator = np.random.default_rng(seed), Generator(seed)
    program, arrays = generator.program(int(rng.integers(3, 14)))
    free = max(i for i, a in enumerate(arrays) if a.dtype.kind == "f")
    n = int(rng.integers(1, 6))
    xs = np.stack([arrays[free] * arrays[free].dtype.type(0.1 * k) for k in range(1, n + 1)])

    def step(carry, t):
        carry = list(carry)
        carry[free] = carry[free] + t
        outs = [Tracer(o) if isinstance(o, Traced) else o for o in run(program, [unwrap(c) for c in carry])]
        total = sum(0.1 * np.sum(np.tanh(o)) for o in outs if o.dtype.kind == "f")
        moved = [(c * 0.9 + 0.01 * total).astype(c.dtype) if c.dtype.kind == "f" else c for c in carry]
        return tuple(moved), outs[0]

    def loss(x, *rest):
        carry = wl.scan(step, (*rest[:free], x, *rest[free:]), xs)[0]
        return sum(np.sum(np.tanh(c)) for c in carry if c.dtype.kind == "f")

    forms = [
        lambda *a: wl.scan(step, a, xs),
        lambda *a: wl.scan(step, a, xs, reverse=True),
        lambda *a: wl.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, *step(c[1:], xs[0])[0]), (np.int64(0), *a)),
        lambda *a: wl.cond(np.sum(a[free]) > 0, lambda *a: step(a, xs[0])[0], lambda *a: a, *a),
        lambda *a: wl.grad(loss)(a[free], *a[:free], *a[free + 1 :]),
    ]
    f = forms[seed % len(forms)]
    with np.errstate(all="ignore"):
        want = tree.flatten(f(*arrays))[0]
    jitted = wl.jit(f)
    for _ in range(2):
        for g, w in zip(tree.flatten(jitted(*arrays))[0], want, strict=True):
            assert_close(g, w, f"seed {seed}\n{program}", is_single(program))
