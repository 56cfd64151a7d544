"""From closed windows to at most one plan: plan, judge, choose, shadow, verify. Pure."""
