"""Mutation testing of knft's source: ``make mutate`` changes one place at a time and lists what no unit test notices.

This is mutmut with other operators: mutants that mypy rejects anyway are left out (None in place of a value, a missing
positional argument), and calls and augmented assignments are removed, which mutmut does not do. It changes no functions
with a decorator, such as properties. ``tests.mutation`` is something else: it changes rule sets.
"""

from collections.abc import Iterator

import libcst as cst
from mutmut.mutation import mutators


def _without_statement(node: cst.Expr | cst.AugAssign) -> Iterator[cst.CSTNode]:
    if isinstance(node, cst.AugAssign) or isinstance(node.value, cst.Call):
        yield cst.Pass()


def _without_optional_argument(node: cst.Call) -> Iterator[cst.CSTNode]:
    for index, argument in enumerate(node.args):
        if len(node.args) > 1 and (argument.keyword is not None or argument.star):
            yield node.with_changes(args=[*node.args[:index], *node.args[index + 1 :]])


def _changed_string(node: cst.BaseString) -> Iterator[cst.CSTNode]:
    """Yield one mutant: mutmut's others change upper and lower case."""
    yield from list(mutators.operator_string(node))[:1]


_REPLACED = {mutators.operator_arg_removal: _without_optional_argument, mutators.operator_string: _changed_string}
_LEFT_OUT = {mutators.operator_assignment, mutators.operator_lambda}


def _choose_operators() -> None:
    """Change mutmut's list of operators in place."""
    operators = mutators.mutation_operators
    operators[:] = [(kind, _REPLACED.get(each, each)) for kind, each in operators if each not in _LEFT_OUT]
    operators += [(cst.Expr, _without_statement), (cst.AugAssign, _without_statement)]


if __name__ == "__main__":
    _choose_operators()
    from mutmut.__main__ import cli

    cli()
