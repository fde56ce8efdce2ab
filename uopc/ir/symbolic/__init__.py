"""`simplify`: rule sets, conditions, assumptions."""
