"""What tests ask of a report."""

from knft.interpret.compare.report import Report


def reasons_in(report: Report) -> set[str]:
    """Return why some packets fare otherwise, each reason by itself."""
    intents = (group.reason for family in report.families for group in family.groups)
    return {reason for intent in intents if intent is not None for reason in intent.split(" + ")}


def unexpected_differences(report: Report) -> list[str]:
    """Return what differs and is not meant, in words."""
    return [
        f"{family.family} {group.service}: {group.sentence}; {group.examples[0]}"
        for family in report.families
        for group in family.groups
        if group.reason is None
    ]
