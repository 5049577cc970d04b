"""Soak tests: long-running tests of which the caller chooses the length. ``make test`` does not run them.

Each soak test is a module with ``soak(amount, seed)``, listed in ``__main__``; it raises or exits if it fails.
"""
