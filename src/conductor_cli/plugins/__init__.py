"""conductor in other harnesses.

Each module is loaded by its harness alone, and may import that harness at its top.
"""
