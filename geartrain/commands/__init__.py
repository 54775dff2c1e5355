"""The commands of the command line, one file per family. What is slow to import is imported when a command runs."""
