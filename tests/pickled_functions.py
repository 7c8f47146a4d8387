"""Functions as people define them in a module, for other processes to find (`test_pickling.py`)."""

import numpy as np

import wonderland as wl


def loss(x, n=2):
    """A loss."""
    return np.sum(np.sin(x) ** n)


def loss_and_aux(x):
    return np.sum(x**3), x


def cubes(x):
    return x**3


@wl.jit
def step(x):
    return x - 0.1 * wl.grad(loss)(x)


@wl.jit(static_argnums=1, donate=0)
def scaled(x, n):
    return x * n


@wl.jit
@wl.grad
def slope(x):
    return np.sum(np.sin(x) ** 2)


@wl.grad
def plain_slope(x):
    return np.sum(np.sin(x) ** 2)


@wl.checkpoint(policy="products")
def block(x):
    return np.tanh(x)


@wl.lift
def filled(x):
    out = np.zeros(3)
    for i in range(3):
        out[i] = x[i] ** 2
    return out


@wl.custom_jvp
def soft(x):
    return np.log1p(np.exp(x))


@soft.defjvp
def soft_rule(primals, tangents):
    (x,), (t,) = primals, tangents
    return soft(x), 7.0 * t


@wl.custom_vjp
def clipped(x):
    return x * 1.0


def clipped_forward(x):
    return x * 1.0, ()


def clipped_backward(residuals, ct):
    return (5.0 * ct,)


clipped.defvjp(clipped_forward, clipped_backward)


@wl.sparse.jacobian
def neighbours(x):
    return x[1:] * x[:-1]


@wl.register_mutable
class Scale:
    def __init__(self, factor):
        self.factor = np.array(factor)

    @wl.jit
    def times(self, x):
        return x * self.factor

    @wl.checkpoint
    def twice(self, x):
        return x * self.factor * 2

    @wl.grad
    def slope(self, x):
        return np.sum(self.factor**2 * x)


def residual(x):
    return np.array(x) * 2


def square(r):
    return np.sum(r**2)


renamed = wl.jit(cubes)
cubes_alone = wl.custom_jvp(cubes)
cubes_alone.defjvp(soft_rule)
