"""The connector to RabbitMQ."""
