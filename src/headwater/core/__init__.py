"""Words that every other room uses. Standard library only."""
