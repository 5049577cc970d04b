"""Mutation testing of knft's source: ``make mutate`` changes one place at a time and lists what no unit test notices.

This is mutmut with other operators: mutants that mypy rejects anyway are left out (None in place of a value, a missing
positional argument), and calls and augmented assignments are removed, which mutmut does not do. It changes no functions
with a decorator, such as properties. Each mutant meets its fastest tests first; mutmut's order is random, and the first
failure ends a run. ``tests.mutation`` is something else: it changes rule sets.
"""

from collections.abc import Iterable, Iterator

import libcst as cst
from mutmut.mutation import mutators
from mutmut.runners.harness import PytestRunner
from mutmut.state import state


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


def _run_fastest_tests_first() -> None:
    """Change mutmut's runner in place."""
    run_in_order = PytestRunner.run_tests

    def run_tests(runner: PytestRunner, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        durations = state().duration_by_test
        fastest_first = sorted(tests, key=lambda test: durations.get(test, 0.0))
        return int(run_in_order(runner, mutant_name=mutant_name, tests=fastest_first))

    PytestRunner.run_tests = run_tests


if __name__ == "__main__":
    _choose_operators()
    _run_fastest_tests_first()
    from mutmut.__main__ import cli

    cli()
