"""The BoundedFrequencyRunner: calls a function on request, between a minimum and a maximum interval."""
