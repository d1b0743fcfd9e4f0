"""What is in a picture: objects and text, as evidence for a language model. Needs the extra `vision`."""
