"""Backtests: what each planner would have achieved on a recording."""
