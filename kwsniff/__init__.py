"""kwsniff: what Kafka clients and brokers say to each other, seen on the wire."""
