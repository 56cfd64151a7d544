"""Local infrastructure: finds Java, fetches jars, runs Kafka, Valkey and child processes on one machine.

In: the environment and a run directory. Out: addresses (bootstrap, Redis URL) and a supervisor.
Knows no stage; what the stages do with the servers does not belong here.
"""
