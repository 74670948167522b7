"""Jobs as values, and the gallery."""
