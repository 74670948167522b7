"""Types and helpers that every other package uses. Standard library only."""
