"""Experiments: comparisons of unlearning methods, benchmarks, and the reproduction of the FRU paper."""
