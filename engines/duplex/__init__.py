"""Frame-synchronous duplex models: the contract, Moshi behind it, and tiny models of the same classes."""
