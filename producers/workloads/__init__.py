"""Who publishes and who wants what: stock quotes, check-ins, and what they are read from."""
