"""One family of findings a module; each takes `Evidence` and returns a tuple of `Finding`, empty if all is well."""
