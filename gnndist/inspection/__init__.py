"""What a store means for a number of ranks: counted, predicted and drawn; no processes."""
