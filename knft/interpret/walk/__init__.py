"""Walks packet classes through a rule set and splits a class where a rule distinguishes its packets.

``walker.Walker`` is created once per rule set and returns the paths of packet classes. The result is exact, not
sampled: probabilities are fractions.
"""
