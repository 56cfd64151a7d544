"""Stages as processes: how one runs, how all are started, watched and stopped, and whether they are well."""
