"""Virtual users, pure: they listen, acknowledge, think, interrupt, say "mhm", hang up. One for every driver.

No JSON, no clock, no asyncio; randomness comes from an injected `random.Random`. A driver feeds `events` and carries
out `intents`; `VirtualUser` is the state machine between them.
"""
