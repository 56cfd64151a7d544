"""The inventory: brokers, what links and processing cost, who may link to whom, and how members join and leave it."""
