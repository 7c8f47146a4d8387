"""Realistic functions, written as NumPy users write them: what compositions of transformations are tested on.

Each factory takes an array namespace (NumPy itself, or a peer's) and the loops it needs, and returns the function: so
the same lines run on arrays, on traced arrays, in JAX and in PyTorch. `python_scan` and `python_while` are the loops
without any transformation, and `ARGUMENTS` has small arguments for each.
"""

from __future__ import annotations

import numpy as np

# Embedded Runge-Kutta pairs, the last stage of which is at the step's end: the stages, and the weights minus those of
# the method of lower order.
DORMAND_PRINCE = (
    (  # 5(4)
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
)
BOGACKI_SHAMPINE = ((), (1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)), (-5 / 72, 1 / 12, 1 / 9, -1 / 8)  # 3(2)


def python_scan(f, init, xs):
    """`scan` as a Python loop over arrays."""
    carry, ys = init, []
    for x in xs:
        carry, y = f(carry, x)
        ys.append(y)
    return carry, None if ys[0] is None else np.stack(ys)


def python_while(condition, body, carry):
    """`while_loop` as a Python loop."""
    while condition(carry):
        carry = body(carry)
    return carry


def gru(xp, scan):
    """Mean squared error of a gated recurrent network's predictions."""

    def sigmoid(z):
        return 0.5 * (xp.tanh(0.5 * z) + 1.0)

    def loss(params, xs, targets):
        size = params["candidate_bias"].shape[0]

        def cell(h, x):
            gates = sigmoid(x @ params["gate_in"] + h @ params["gate_state"] + params["gate_bias"])  # (2 size,)
            update, reset = gates[:size], gates[size:]
            mixed = x @ params["candidate_in"] + (reset * h) @ params["candidate_state"]
            h = (1.0 - update) * h + update * xp.tanh(mixed + params["candidate_bias"])
            return h, h @ params["readout"]

        _, predictions = scan(cell, xp.zeros_like(params["candidate_bias"]), xs)
        return xp.mean((predictions - targets) ** 2)

    return loss


def lotka_volterra(xp, y, theta):
    """The right-hand side of the predator-prey equations."""
    growth, hunting, feeding, death = theta
    prey, predator = y
    return xp.stack([growth * prey - hunting * prey * predator, feeding * prey * predator - death * predator])


def van_der_pol(xp, y, mu):
    """The right-hand side of van der Pol's oscillator."""
    return xp.stack([y[1], mu * (1.0 - y[0] * y[0]) * y[1] - y[0]])


def adaptive_solution(xp, while_loop, field, pair=DORMAND_PRINCE, tolerance=1e-8):
    """The solution of y' = field(xp, y, theta) at t_end, by an embedded Runge-Kutta pair with step size control."""
    stages, error_weights = pair
    power = -1.0 / (len(stages) - 1 if len(stages) < 5 else len(stages) - 2)

    def solution(theta, y0, t_end):
        def step(state):
            y, left, h = state
            slopes = []
            for row in stages:
                at = y
                for a, k in zip(row, slopes):
                    at = at + (h * a) * k
                slopes.append(field(xp, at, theta))
            new = at  # the last stage is evaluated at the step's end
            error = h * sum(e * k for e, k in zip(error_weights, slopes))
            size = xp.sqrt(xp.mean((error / (tolerance * (1.0 + xp.abs(y)))) ** 2) + 1e-12)
            accept = size <= 1.0
            left = xp.where(accept, left - h, left)
            h = xp.minimum(h * xp.clip(0.9 * size**power, 0.2, 5.0), left)
            return xp.where(accept, new, y), left, h

        return while_loop(lambda state: state[1] > 0, step, (y0, t_end, 0.01 * t_end))[0]

    return solution


def gaussian_process(xp, solve=None):
    """The log-likelihood of y under a Gaussian process, by Cholesky's factorisation."""
    solve = solve or xp.linalg.solve

    def log_likelihood(log_scales, x, y):
        length, amplitude, noise = xp.exp(log_scales)
        difference = x[:, None] - x[None, :]
        kernel = amplitude**2 * xp.exp(-0.5 * (difference / length) ** 2) + noise**2 * xp.eye(len(x), dtype=x.dtype)
        factor = xp.linalg.cholesky(kernel)
        white = solve(factor, y)
        return -0.5 * xp.sum(white**2) - xp.sum(xp.log(xp.diagonal(factor))) - 0.5 * len(x) * np.log(2 * np.pi)

    return log_likelihood


def fft_filter(xp):
    """Squared error of a signal sent through a low-pass filter with a delay, in the frequency domain."""

    def filtered(params, signal):
        cutoff, delay = params
        n = signal.shape[0]
        frequencies = xp.arange(n // 2 + 1, dtype=signal.dtype) / n
        gain = 1.0 / (1.0 + (frequencies / cutoff) ** 4)
        phase = 2 * np.pi * frequencies * delay
        response = gain * xp.cos(phase) - 1j * (gain * xp.sin(phase))
        return xp.fft.irfft(response * xp.fft.rfft(signal), n=n)

    def loss(params, signal, target):
        return 0.5 * xp.sum((filtered(params, signal) - target) ** 2)

    return loss


def softmax_classifier(xp):
    """Mean cross-entropy of a linear classifier, with a quadratic penalty."""

    def loss(params, x, labels):
        weights, bias = params
        logits = x @ weights + bias
        shifted = logits - xp.amax(logits, axis=1, keepdims=True)
        log_sum = xp.log(xp.sum(xp.exp(shifted), axis=1))
        picked = xp.sum(shifted * labels, axis=1)  # labels are one-hot
        return xp.mean(log_sum - picked) + 0.05 * xp.sum(weights**2)

    return loss


def horner(xp, scan):
    """A polynomial of two variables by a scan inside a scan: sum_ij c_ij a^i b^j, highest powers first."""

    def value(a, b, c):
        def along_row(total, row):
            inner, _ = scan(lambda s, entry: (s * b + entry, None), xp.zeros_like(b), row)
            return total * a + inner, None

        return scan(along_row, xp.zeros_like(a), c)[0]

    return value


def hierarchical_rnn(xp, scan):
    """Words are read letter by letter, the text word by word: a recurrent network in a recurrent network."""

    def loss(params, texts):
        letters, words = params

        def word(state, spelled):
            read, _ = scan(lambda h, letter: (xp.tanh(h @ letters + letter), None), state, spelled)
            state = xp.tanh(state @ words + read)
            return state, state

        _, states = scan(word, xp.zeros_like(words[0]), texts)
        return xp.sum(states**2) / texts.shape[0]

    return loss


def _arguments() -> dict:
    rng = np.random.default_rng(11)
    shapes = {
        "gate_in": (2, 6), "gate_state": (3, 6), "gate_bias": (6,), "candidate_in": (2, 3),
        "candidate_state": (3, 3), "candidate_bias": (3,), "readout": (3,),
    }  # fmt: skip
    times = np.linspace(0.0, 1.0, 6)
    return {
        "gru": ({k: 0.6 * rng.normal(size=s) for k, s in shapes.items()}, rng.normal(size=(5, 2)), rng.normal(size=5)),
        "lotka_volterra": (np.array([1.1, 0.4, 0.1, 0.4]), np.array([3.0, 2.0]), np.float64(4.0)),
        "van_der_pol": (np.float64(1.5), np.array([1.0, 0.5]), np.float64(3.0)),
        "gaussian_process": (np.array([-0.8, 0.2, -1.2]), times + 0.05 * rng.normal(size=6), np.sin(5 * times)),
        "fft_filter": (np.array([0.2, 1.3]), rng.normal(size=10), rng.normal(size=10)),
        "softmax_classifier": (
            (rng.normal(size=(4, 3)), rng.normal(size=3)), rng.normal(size=(7, 4)), np.eye(3)[rng.integers(0, 3, 7)],
        ),
        "horner": (np.float64(0.7), np.float64(-0.6), rng.normal(size=(4, 3))),
        "hierarchical_rnn": (
            (0.5 * rng.normal(size=(3, 3)), 0.5 * rng.normal(size=(3, 3))), rng.normal(size=(3, 4, 3)),
        ),
    }  # fmt: skip


ARGUMENTS = _arguments()
