"""What devices are called in options and by torch. Light: options are read without torch."""

AUTO, CPU, GPU = "auto", "cpu", "cuda"
CHOICES = (AUTO, CPU, GPU)
"""what an option may say"""
