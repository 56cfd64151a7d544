"""Yardsticks: bounds and algorithms that only an evaluation compares with."""
