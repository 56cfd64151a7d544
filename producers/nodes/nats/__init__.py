"""The connector to NATS servers, at their leaf port, and JetStream."""
