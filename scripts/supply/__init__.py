"""What this project is made of.

`audit` looks for known vulnerabilities in it, `sbom` writes its bill of materials.
"""
