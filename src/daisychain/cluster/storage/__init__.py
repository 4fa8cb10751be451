"""What a run leaves on disk: its folder, checkpoints, metrics, and the way back from them."""
