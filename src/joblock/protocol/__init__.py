"""Floor 4: how a lease is won, kept and given back; pure, without I/O and without waiting."""
