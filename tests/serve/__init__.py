"""The live page: its model, its server, and the page in a browser."""
