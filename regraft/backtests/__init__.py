"""Planners on a recording: what would each have made of it?"""
