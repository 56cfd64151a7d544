"""The connectors to NATS servers, at their leaf port and at their client port, and JetStream."""
