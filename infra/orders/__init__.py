"""Orders of operators: keys, signatures, and who may give them."""
