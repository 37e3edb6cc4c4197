"""`make check-deploy`: the deploy kit, checked without Docker and without Kubernetes."""
