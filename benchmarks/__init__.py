"""Measurements behind numbers in the docs; ratios, side by side, never asserted by a test."""
