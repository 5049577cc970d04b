"""``knft trace`` on rendered and captured rules: outcomes, reasons and output formats."""
