"""The pass order-storage: the order in which stored values have their axes."""
