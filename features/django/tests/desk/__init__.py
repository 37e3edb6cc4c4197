"""An application of the project, with tools."""
