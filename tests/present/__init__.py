"""The forms of a comparison's report: text, JSON, and a page that a browser opens."""
