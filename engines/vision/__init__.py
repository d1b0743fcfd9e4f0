"""What a camera shows: objects and text of a picture, as evidence for a language model. Needs the extra `vision`."""
