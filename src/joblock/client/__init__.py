"""Floor 5: the clients, their locks and leases, and the keeper that renews them."""
