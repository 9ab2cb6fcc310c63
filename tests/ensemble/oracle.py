"""EFL-FG and FedBoost in plain float64 NumPy, written from the papers and for the tests only."""

import math
from decimal import Decimal, getcontext

import numpy as np

getcontext().prec = 50


def feedback_graph(log_weight, previous, sizes, budget):
    """EFL-FG Algorithm 1 for one run; rows are vertices. Weights are decimals of 50 digits, any exponent."""
    count, sizes = len(sizes), [int(size) for size in sizes]
    weight = [Decimal(float(x)).exp() for x in log_weight]
    graph = np.zeros((count, count), bool)
    for k in range(count):
        before, members = set(np.flatnonzero(previous[k]).tolist()), {k}
        while True:
            used = sum(sizes[j] for j in members)
            best, best_score = None, -np.inf
            for i in range(count):
                score = log_weight[i] - math.log(used + sizes[i])
                if i in members or used + sizes[i] > budget or score <= best_score + 1e-12:
                    continue
                grown = members | {i}
                if sum(weight[j] for j in grown - before) <= sum(weight[j] for j in before - grown):
                    best, best_score = i, score
            if best is None:
                break
            members.add(best)
        graph[k, list(members)] = True
    return graph


def dominating_set(graph):
    """Greedy set cover, Chvatal 1979 with unit costs."""
    uncovered = set(range(len(graph)))
    members = np.zeros(len(graph), bool)
    while uncovered:
        gains = [sum(bool(graph[v, u]) for u in uncovered) for v in range(len(graph))]
        chosen = int(np.argmax(gains))
        members[chosen] = True
        uncovered -= set(np.flatnonzero(graph[chosen]))
    return members


class EflFg:
    """EFL-FG Algorithm 2 for one run; the drawn node comes from outside."""

    def __init__(self, sizes, budget, learning_rate, exploration_rate):
        self.sizes, self.budget = np.asarray(sizes), budget
        self.rate, self.exploration = learning_rate, exploration_rate
        count = len(sizes)
        self.log_w, self.log_u = np.zeros(count), np.zeros(count)
        self.graph = np.ones((count, count), bool)

    def look(self):
        """This round's graph, dominating set, p and q."""
        self.graph = feedback_graph(self.log_w, self.graph, self.sizes, self.budget)
        self.dominating = dominating_set(self.graph)
        u = np.exp(self.log_u - self.log_u.max())
        self.p = (1 - self.exploration) * u / u.sum() + self.exploration * self.dominating / (
            self.dominating.sum()
        )
        self.q = np.array([self.p[self.graph[:, k]].sum() for k in range(len(self.p))])
        return self.graph, self.dominating, self.p, self.q

    def ensemble(self, k):
        """The weights of EFL-FG (5) when vertex k is drawn."""
        w = np.where(self.graph[k], np.exp(self.log_w - self.log_w[self.graph[k]].max()), 0)
        return w / w.sum()

    def learn(self, node, predictions, targets):
        """EFL-FG (6), EFL-FG (8), EFL-FG (9); predictions [n, K]. Returns the ensemble's summed loss."""
        loss = ((predictions - targets[:, None]) ** 2).sum(axis=0)
        ensemble_loss = ((predictions @ self.ensemble(node) - targets) ** 2).sum()
        sent = self.graph[node]
        self.log_w = self.log_w - self.rate * np.where(sent, loss / self.q, 0)
        self.log_u[node] -= self.rate * ensemble_loss / self.p[node]
        return ensemble_loss


def inclusion_probability(cost, budget, share):
    """γ = min(1, C·share) with expected cost equal to the budget, C by bisection."""
    if cost.sum() <= budget:
        return np.ones_like(share)
    low, high = 0.0, 1 / share.min()
    for _ in range(200):
        middle = (low + high) / 2
        if (np.minimum(1, middle * share) * cost).sum() < budget:
            low = middle
        else:
            high = middle
    return np.minimum(1, high * share)


class FedBoost:
    """One run; the included models come from outside."""

    def __init__(self, cost, budget, learning_rate, sampling, normalized=False):
        self.cost, self.budget, self.rate = cost, budget, learning_rate
        self.sampling, self.normalized = sampling, normalized
        self.log_alpha = np.zeros(len(cost))

    def look(self):
        """α and γ of this round."""
        alpha = np.exp(self.log_alpha - self.log_alpha.max())
        alpha /= alpha.sum()
        if self.sampling == "count":
            models = self.budget / self.cost.max() / len(alpha)
            return alpha, np.full(len(alpha), min(models, 1.0))
        share = alpha if self.sampling == "weighted" else np.ones_like(alpha)
        return alpha, inclusion_probability(self.cost, self.budget, share)

    def mix(self, sent):
        alpha, gamma = self.look()
        mixing = np.where(sent, alpha / gamma, 0)
        return mixing / mixing.sum() if self.normalized and sent.any() else mixing

    def learn(self, sent, predictions, targets):
        residual = predictions @ self.mix(sent) - targets
        gradient = (2 * residual[:, None] * predictions).mean(axis=0)
        self.log_alpha = self.log_alpha - self.rate * np.where(sent, gradient, 0)
        return (residual**2).sum()
