"""The pass decompose and the expansions it uses."""
