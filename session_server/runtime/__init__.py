"""The asyncio shell: sessions, stage runners, HTTP, and the message seam between them."""
