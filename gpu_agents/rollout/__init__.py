"""The generating half of a run: the controller, the workers, and the engines that they drive."""
