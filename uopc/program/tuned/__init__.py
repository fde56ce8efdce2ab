"""What searches and measurements found, as the database has it, given to compiles."""
