"""Results of searches and measurements, which the database gives to all compiles."""
