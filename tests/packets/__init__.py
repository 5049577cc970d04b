"""Real packets through the ruleset that ``knft run`` made, between the lab's network namespaces."""
