"""Inspect the curvature of a model: one report for any network, data and loss."""
