"""A report whose untrusted texts attack every format."""

from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import (
    DifferenceGroup,
    Example,
    FamilyReport,
    ObservedOutcome,
    Report,
    ReportMetadata,
    UninterpretedRule,
)

HOSTILE_TEXTS = (
    "<script>document.title='owned'</script>",
    "</style><style>body{display:none}",
    "\"><img src=x onerror=document.title='owned'>",
    "' onmouseover='document.title=1",
    "{{ 7 * 7 }}{% raw %}",
    "[bold red]markup[/] [/] :smile:",
    "\x1b[2J\x1b]0;owned\x07\r\n\x00\x9b31m",
    "\N{RIGHT-TO-LEFT OVERRIDE}txt.exe\N{ZERO WIDTH SPACE}\N{LINE SEPARATOR}",
    "\udc80 not UTF-8",
    "名前/服务:ポート \N{PILE OF POO} \N{COMBINING ACUTE ACCENT}",
    "http://192.0.2.1/probe.png url(http://192.0.2.1/)",
    "long-" * 1000,
)


def hostile_report() -> Report:
    """Return a report with each hostile text in every field."""
    families = [FamilyReport("IPv4", Counts(equal=1, expected=1, different=1, undecided=1))]
    for harm in HOSTILE_TEXTS:
        seen = (ObservedOutcome("1/2", "delivered", harm, harm, 3), ObservedOutcome("1/2", "rejected"))
        example = Example(harm, harm, harm, seen, seen, (harm, f"{harm}: {harm}"), (harm,))
        families[0].groups += [
            DifferenceGroup("verdict", harm, None, harm, 1, [example], harm, harm),
            DifferenceGroup("undecided", harm, None, harm, 1, [example]),
            DifferenceGroup("expected", harm, harm, harm, 1, [example]),
        ]
        families[0].uninterpreted_rules.append(UninterpretedRule("left", harm, 1, harm))
    every = " ".join(HOSTILE_TEXTS)
    about = ReportMetadata(every, HOSTILE_TEXTS, every, every, every, HOSTILE_TEXTS, HOSTILE_TEXTS)
    return Report(every, every, families, 0.1, list(HOSTILE_TEXTS), about)
