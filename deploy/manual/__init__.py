"""Writes knft's manual pages: ``python -m deploy.manual FOLDER``.

Their date is SOURCE_DATE_EPOCH, or that of the newest commit, so that equal sources give equal pages.

The pages are made from the help of the commands and the table of options, so they need no changes of their own;
``texts`` has what the help does not say: examples, files, signals, environment variables. ``commands`` makes the pages
of section 8, ``configuration`` knft-config(5), and ``roff`` their source text.
"""
