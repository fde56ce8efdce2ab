"""Results of searches and measurements, which the database has, for all compiles."""
