"""The similarities as one would write them down: float64, one pair at a time, explicit matrices.

Nothing here is shared with the implementation: HSIC goes through the centring matrix (biased) or
through the traces of Song et al.'s estimator (unbiased), never through an inner product of tiles. The
traces cancel almost wholly where a kernel is near constant, so CKA is worked out in extended precision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]


def frobenius(batch: Matrix) -> Matrix:
    experts = len(batch)
    distance = np.zeros((experts, experts))
    for p in range(experts):
        for q in range(experts):
            distance[p, q] = np.sqrt(((batch[p] - batch[q]) ** 2).sum())
    return 1 - distance / distance.max() if distance.max() > 0 else np.ones_like(distance)


def cosine(batch: Matrix) -> Matrix:
    experts, tokens, _ = batch.shape
    out = np.eye(experts)
    for p in range(experts):
        for q in range(experts):
            if p == q:
                continue
            total = 0.0
            for x, y in zip(batch[p], batch[q], strict=True):
                lengths = np.linalg.norm(x) * np.linalg.norm(y)
                total += x @ y / lengths if lengths > 0 else 0.0
            out[p, q] = total / tokens
    return out


def kernel_matrix(x: Matrix, kernel: str) -> Matrix:
    if kernel == "linear":
        return x @ x.T
    if kernel == "poly":
        return (x @ x.T + 1) ** 2
    tokens = len(x)
    squared = np.array([[((x[i] - x[j]) ** 2).sum() for j in range(tokens)] for i in range(tokens)])
    variance = squared.var(ddof=1)
    return np.exp(-squared / (2 * variance)) if variance > 1e-8 else np.ones_like(squared)


def hsic_biased(k: Matrix, el: Matrix) -> np.floating:
    n = len(k)
    h = np.eye(n) - np.ones((n, n), np.longdouble) / n
    return np.trace(k @ h @ el @ h)


def hsic_unbiased(k: Matrix, el: Matrix) -> np.floating:
    n = len(k)
    k, el = k - np.diag(np.diag(k)), el - np.diag(np.diag(el))
    one = np.ones(n, np.longdouble)
    inner = np.trace(k @ el)
    sums = (one @ k @ one) * (one @ el @ one) / ((n - 1) * (n - 2))
    cross = 2 / (n - 2) * (one @ k @ el @ one)
    return (inner + sums - cross) / (n * (n - 3))


def cka(batch: Matrix, metric: str) -> Matrix:
    _, kernel, estimator = metric.split("_")
    hsic = hsic_biased if estimator == "biased" else hsic_unbiased
    kernels = [kernel_matrix(x.astype(np.longdouble), kernel) for x in batch]
    own = [hsic(k, k) for k in kernels]
    out = np.eye(len(batch))
    for p in range(len(batch)):
        for q in range(len(batch)):
            if p != q:
                out[p, q] = hsic(kernels[p], kernels[q]) / np.sqrt(own[p] * own[q])
    return out


def similarity(batch: Matrix, metric: str) -> Matrix:
    """Similarity of every pair; ``batch`` has shape [E, N, H]."""
    if metric in ("frobenius", "cosine"):
        return {"frobenius": frobenius, "cosine": cosine}[metric](batch)
    return cka(batch, metric)


def routed_sums(outputs: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Every sum, a token and a pair at a time; ``outputs`` has shape [E, N, H]."""
    experts = len(outputs)
    names = ("count", "gram", "cross", "target", "source")
    found = {f"routed_{name}": np.zeros((experts, experts)) for name in names}
    found["routed_norm"] = np.zeros(experts)
    for token in range(outputs.shape[1]):
        slots = zip(ids[token], weights[token], strict=True)
        routed = {int(expert) for expert, weight in slots if 0 <= expert < experts and weight != 0}
        for p in routed:
            found["routed_norm"][p] += np.linalg.norm(outputs[p, token])
            for q in routed:
                mine, other = outputs[p, token], outputs[q, token]
                length = np.linalg.norm(mine)
                found["routed_count"][p, q] += 1
                found["routed_gram"][p, q] += mine @ other
                found["routed_cross"][p, q] += length * (mine @ other)
                found["routed_target"][p, q] += length * (other @ other)
                found["routed_source"][p, q] += length**3
    return found
