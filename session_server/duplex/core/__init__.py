"""The pure part of full duplex: the session, who has a slot, the grid of ticks."""
