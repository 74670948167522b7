"""Jobs as values: definitions, endpoints, rules, and the gallery of example jobs."""
