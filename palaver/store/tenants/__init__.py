"""Who owns what there is: the tenants of an installation."""
