"""Soak tests: tests that run as long as one likes, and watch memory. ``make test`` does not run them.

Each one is a module with ``soak(amount, seed)``, listed in ``__main__``; it raises or exits if something is wrong.
"""
