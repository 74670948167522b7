"""Side-by-side measurements: ``python -m bench`` runs them, bench/results/ holds what they gave."""
