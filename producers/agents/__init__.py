"""Agents beside clients: a client connects to its agent, which takes its subscriptions from broker to broker."""
