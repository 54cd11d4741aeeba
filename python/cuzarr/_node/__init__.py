"""Arrays and groups of a store, and the functions that open and create them."""
