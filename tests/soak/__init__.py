"""Soaks: what the tests do for a minute, for as long as one likes, with an eye on memory. Never part of ``make test``.

Each lane is a module with ``soak(amount, seed)``, named in ``__main__``; it raises where something is wrong.
"""
