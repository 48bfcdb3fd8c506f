"""`manage.py doctor`: what an operator, or somebody who helps one, needs to see, without a secret in it."""
