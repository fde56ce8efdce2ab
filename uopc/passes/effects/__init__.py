"""Effects: versions and views of storage, and copies that keep what a store overwrites."""
