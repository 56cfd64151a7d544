"""Local infrastructure: find Java, fetch jars, run Kafka, Valkey and child processes on one machine.

In: the environment and a run directory. Out: addresses (bootstrap, Redis URL) and a supervisor. It knows no stage; what
the stages do with the servers does not belong here.
"""
