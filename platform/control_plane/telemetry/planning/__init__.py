"""Simulations of runs that have not started, from service times that earlier runs measured or a data sheet gives."""
