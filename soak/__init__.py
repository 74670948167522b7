"""Randomized fault injection: stories of kills, rewinds, forks and outages on real jobs, checked against an oracle."""
