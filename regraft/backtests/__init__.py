"""Planners on a recording: what would each have achieved?"""
