"""Floor 2: what a store is asked and answers, as data, and the meaning of it."""
