"""A report in which every word of others' means harm."""

from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import About, Example, FamilyReport, Group, Report, Seen, Unread

HARM = (
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


def hostile() -> Report:
    """Return a report that has each of them in each of its places."""
    families = [FamilyReport("IPv4", Counts(equal=1, by_intent=1, different=1, undecided=1))]
    for harm in HARM:
        seen = (Seen("1/2", "delivered", harm, harm, 3), Seen("1/2", "rejected"))
        example = Example(harm, harm, harm, seen, seen, (harm, f"{harm}: {harm}"), (harm,))
        families[0].groups += [
            Group("verdict", harm, None, harm, 1, [example], harm, harm),
            Group("undecided", harm, None, harm, 1, [example]),
            Group("intent", harm, harm, harm, 1, [example]),
        ]
        families[0].unread.append(Unread("left", harm, 1, harm))
    every = " ".join(HARM)
    about = About(every, HARM, every, every, every, HARM, HARM)
    return Report(every, every, families, 0.1, list(HARM), about)
