"""Mutation tests of ``knft diff``: it has to find faults in captures, and to accept equivalent captures.

``campaign`` mutates captures of generated clusters and compares them with knft's rules. ``make mutants`` runs it on
several clusters, ``test_mutants`` on one cluster for each mode.
"""
