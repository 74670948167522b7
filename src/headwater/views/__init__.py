"""Results as plain values, shared by the terminal, JSON and the page."""
