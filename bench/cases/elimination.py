"""Jacobians of small functions, by vertex elimination, against the better of forward and reverse mode."""

from functools import partial

from bench.registry import Benchmark
from wonderland.testing.problems import PROBLEMS


def register(name, about, by_columns):
    f, args, _ = PROBLEMS[name]
    benchmark = Benchmark(
        f"jacobian_{name}",
        "Jacobians of small functions",
        f"Jacobian of {about}, float64, per call",
        lambda: args,
        limit=0.3,
        rtol=1e-10,
        atol=1e-12,
        float64=True,
    )

    @benchmark.contender("wonderland")
    def ours(x):
        import wonderland as wl

        jacobian = wl.jit(wl.jacobian(f, mode="elimination"))
        return lambda: jacobian(x)

    @benchmark.contender("torch")
    def in_torch(x):
        import torch

        jacobian = (torch.func.jacfwd if by_columns else torch.func.jacrev)(partial(f, xp=torch))
        x = torch.from_numpy(x)
        return lambda: jacobian(x)

    @benchmark.contender("jax")
    def in_jax(x):
        import jax

        jacobian = jax.jit((jax.jacfwd if by_columns else jax.jacrev)(partial(f, xp=jax.numpy)))
        x = jax.numpy.asarray(x)
        return lambda: jacobian(x).block_until_ready()


register("robot_arm", "a robot arm's kinematics, 6 to 6", True)
register("roe_flux", "Roe's flux, 6 to 3", False)
