"""Names of the ranking metrics that devices report."""

#: Metrics of the sampled protocol: each test item ranked against a fixed number of candidates.
SAMPLED = ("hr", "ndcg")
#: Metrics of the full protocol: all items ranked.
FULL = ("hr", "ndcg", "recall")
#: Length of the recommendation lists that devices evaluate.
K = 10
