"""The controller stage, from state to plans to commands: read, plan, judge, choose, transition, verify. Imports no
other stage.
"""
