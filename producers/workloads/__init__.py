"""Who publishes and who wants what: stock quotes and check-ins, and the data that they are read from."""
