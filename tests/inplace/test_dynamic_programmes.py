"""Tables filled cell by cell: soft alignment, hidden Markov models, knapsacks, shortest paths, Pascal's triangle."""

import numpy as np
from checking import check, close

import wonderland as wl

A = np.array([0.2, 1.1, -0.4, 0.9])
B = np.array([0.1, 0.8, 0.5, -0.3, 1.0])


def softmin(values, gamma):
    z = -np.array(values) / gamma
    top = np.max(z)
    return -gamma * (top + np.log(np.sum(np.exp(z - top))))


def soft_dtw(x, y, gamma):
    n, m = len(x), len(y)
    D = np.full((n + 1, m + 1), 1e6)
    D[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = (x[i - 1] - y[j - 1]) ** 2
            D[i, j] = cost + softmin([D[i - 1, j], D[i, j - 1], D[i - 1, j - 1]], gamma)
    return D[n, m]


def test_soft_dtw():
    check(soft_dtw, A, B, 0.3)


def test_soft_dtw_gradient_is_the_expected_alignment():
    """With respect to the costs it is a distribution over cells; each path has a first and a last one."""

    def by_cost(cost):
        n, m = cost.shape
        D = np.full((n + 1, m + 1), np.inf)
        D[0, 0] = 0.0
        for i in range(n):
            for j in range(m):
                D[i + 1, j + 1] = cost[i, j] + softmin([D[i, j + 1], D[i + 1, j], D[i, j]], 0.3)
        return D[-1, -1]

    cost = (A[:, None] - B) ** 2
    gradient = wl.grad(wl.lift(by_cost))(cost)
    assert np.all(gradient >= 0) and np.isclose(gradient[0, 0], 1) and np.isclose(gradient[-1, -1], 1)
    assert np.all(gradient.sum(axis=1) >= 1 - 1e-12)


def edit_distance(costs, substitution):
    """A soft edit distance, two rows at a time."""
    n, m = substitution.shape
    previous = np.zeros(m + 1)
    for j in range(m):
        previous[j + 1] = previous[j] + costs[0]
    current = np.empty(m + 1)
    for i in range(n):
        current[0] = previous[0] + costs[1]
        for j in range(m):
            options = np.array([previous[j] + substitution[i, j], previous[j + 1] + costs[1], current[j] + costs[0]])
            current[j + 1] = -np.log(np.sum(np.exp(-options)))
        previous[:] = current
    return previous[-1]


def test_edit_distance_in_two_rows():
    check(edit_distance, np.array([0.7, 0.9]), np.abs(A[:3, None] - B[:3]))


def levenshtein(a, b, cost):
    """The hard one: min by Python's comparisons, on values."""
    D = np.zeros((len(a) + 1, len(b) + 1))
    D[:, 0] = cost * np.arange(len(a) + 1)
    D[0, :] = cost * np.arange(len(b) + 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            D[i + 1, j + 1] = min(D[i, j] + (x != y), D[i, j + 1] + cost, D[i + 1, j] + cost)
    return D[-1, -1]


def test_levenshtein_counts_its_edits():
    value, slope = wl.value_and_grad(wl.lift(lambda cost: levenshtein("kitten", "sitting", cost)))(0.9)
    assert np.isclose(value, levenshtein("kitten", "sitting", 0.9)) and np.isclose(value, 2 + 0.9)
    assert np.isclose(slope, 1.0)  # two substitutions and one insertion


PI = np.array([0.6, 0.4])
TRANSITION = np.array([[0.7, 0.3], [0.4, 0.6]])
EMISSION = np.array([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]])
SEEN = [0, 1, 2, 1, 0]


def forward_algorithm(pi, A, B):
    alpha = np.zeros((len(SEEN), len(pi)))
    scale = np.zeros(len(SEEN))
    alpha[0] = pi * B[:, SEEN[0]]
    scale[0] = np.sum(alpha[0])
    alpha[0] /= scale[0]
    for t in range(1, len(SEEN)):
        alpha[t] = (alpha[t - 1] @ A) * B[:, SEEN[t]]
        scale[t] = np.sum(alpha[t])
        alpha[t] /= scale[t]
    return np.sum(np.log(scale))


def test_forward_algorithm():
    check(forward_algorithm, PI, TRANSITION, EMISSION)


def test_its_gradient_is_the_expected_count():
    """Baum-Welch's expectations are transition * d log p / d transition; here by enumeration of all paths."""
    from itertools import pairwise, product

    counts, total = np.zeros((2, 2)), 0.0
    for path in product(range(2), repeat=len(SEEN)):
        p = PI[path[0]] * EMISSION[path[0], SEEN[0]]
        for before, now, seen in zip(path, path[1:], SEEN[1:]):
            p *= TRANSITION[before, now] * EMISSION[now, seen]
        total += p
        for before, now in pairwise(path):
            counts[before, now] += p
    gradient = wl.grad(wl.lift(forward_algorithm), argnums=1)(PI, TRANSITION, EMISSION)
    np.testing.assert_allclose(gradient * TRANSITION, counts / total, rtol=1e-12)


def viterbi(log_pi, log_a, log_b):
    delta = np.zeros((len(SEEN), len(log_pi)))
    delta[0] = log_pi + log_b[:, SEEN[0]]
    for t in range(1, len(SEEN)):
        for s in range(len(log_pi)):
            delta[t, s] = np.max(delta[t - 1] + log_a[:, s]) + log_b[s, SEEN[t]]
    return np.max(delta[-1])


def test_viterbi():
    check(viterbi, np.log(PI), np.log(TRANSITION), np.log(EMISSION))
    counts = wl.grad(wl.lift(viterbi), argnums=1)(np.log(PI), np.log(TRANSITION), np.log(EMISSION))
    assert np.all(np.isin(counts, np.arange(5))) and counts.sum() == len(SEEN) - 1


def knapsack(values):
    weights, capacity = [2, 3, 4, 5], 9
    best = np.zeros(capacity + 1)
    for value, weight in zip(values, weights):
        for c in range(capacity, weight - 1, -1):
            best[c] = np.maximum(best[c], best[c - weight] + value)
    return best[-1]


def test_knapsack_gradient_is_the_selection():
    values = np.array([3.1, 4.2, 5.3, 6.0])
    check(knapsack, values)
    np.testing.assert_array_equal(wl.grad(wl.lift(knapsack))(values), [1, 1, 1, 0])


def knapsack_by_rows(values):
    weights, capacity = [2, 3, 4, 5], 9
    table = np.zeros((len(values) + 1, capacity + 1))
    for i, w in enumerate(weights):
        table[i + 1] = table[i]
        np.maximum(table[i, w:], table[i, :-w] + values[i], out=table[i + 1, w:])
    return table[-1, -1]


def test_knapsack_by_rows_with_out():
    check(knapsack_by_rows, np.array([3.1, 4.2, 5.3, 6.0]))


def floyd_warshall(distance):
    d = distance.copy()
    n = len(d)
    for k in range(n):
        d[:] = np.minimum(d, d[:, k, None] + d[None, k, :])
    return d


def test_shortest_paths():
    distance = np.array([[0, 1.1, 4.0, 9.0], [1.2, 0, 2.5, 5.0], [4.1, 2.3, 0, 1.7], [9.1, 5.2, 1.8, 0]])
    off = ~np.eye(4, dtype=bool)

    def total(numbers):
        full = np.zeros((4, 4))
        full[off] = numbers
        return floyd_warshall(full)

    value, _ = check(total, distance[off], jit=False, vmap=False)
    assert np.isclose(value[0, 3], 1.1 + 2.5 + 1.7)


def binomial_option(s, sigma, r, strike=1.0, steps=6):
    """A Cox-Ross-Rubinstein tree, rolled back in place; American put."""
    dt = 1.0 / steps
    up = np.exp(sigma * np.sqrt(dt))
    p = (np.exp(r * dt) - 1 / up) / (up - 1 / up)
    price = s * up ** (2.0 * np.arange(steps + 1) - steps)
    value = np.maximum(strike - price, 0.0)
    for i in range(steps, 0, -1):
        value[:i] = np.exp(-r * dt) * (p * value[1 : i + 1] + (1 - p) * value[:i])
        price[:i] *= up
        value[:i] = np.maximum(value[:i], strike - price[:i])
    return value[0]


def test_option_on_a_tree():
    check(binomial_option, 0.95, 0.3, 0.02)


def partition_function(energies):
    """Pascal-like recurrence, one array overwritten from the right."""
    z = np.zeros(len(energies) + 1)
    z[0] = 1.0
    for e in energies:
        z[1:] += z[:-1] * np.exp(-e)
    return z


def test_elementary_symmetric_polynomials():
    value, _ = check(partition_function, A)
    close(value, np.poly(-np.exp(-A)), 1e-12)
