"""What both the coordinator and the embedding servers know of a checkpoint's folder."""

MANIFEST_NAME = "manifest.json"
"""The file that describes all others; it is written last."""
