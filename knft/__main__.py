"""``python -m knft``."""

from knft.cli.main import main

main()
