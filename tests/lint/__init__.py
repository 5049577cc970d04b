"""``knft lint``: each check, broken clusters, formats. ``tests/packets/test_lint_findings.py`` sends packets."""
