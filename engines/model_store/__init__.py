"""Model files: what each is made of and may be used for, where it is kept, how it is fetched and built."""
