"""Extracts reasons and unexpected differences from reports."""

from knft.interpret.compare.report import Report


def reasons_in(report: Report) -> set[str]:
    """Return the reasons of all expected differences in a report."""
    combined = (group.reason for family in report.families for group in family.groups)
    return {reason for reasons in combined if reasons is not None for reason in reasons.split(" + ")}


def unexpected_differences(report: Report) -> list[str]:
    """Return descriptions of all unexpected differences in a report."""
    return [
        f"{family.family} {group.service}: {group.description}; {group.examples[0]}"
        for family in report.families
        for group in family.groups
        if group.reason is None
    ]
