"""What rules do, told by interpreting them, and held to a model that knows no rules."""
