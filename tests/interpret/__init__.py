"""Tests of knft.interpret: parsing, walking and comparing rules, and a model of Services that knows no rules."""
