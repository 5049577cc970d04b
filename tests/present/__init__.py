"""Tests of the formats of a report: text, JSON, and the HTML page, also in a browser."""
