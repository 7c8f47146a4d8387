"""Projections, proximal operators and optimal transport."""
