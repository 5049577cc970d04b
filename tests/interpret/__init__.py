"""Tests of knft.interpret: parsing, walking and comparing rules, and a model that computes outcomes without rules."""
