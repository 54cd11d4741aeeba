"""Checks the recipe for conda-forge by rattler-build's own parser, renders it for Linux, and compares it with the package's metadata.

python scripts/check_conda_recipe.py
"""

import pathlib
import sys
import tomllib

from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPE = ROOT / "packaging" / "conda" / "recipe.yaml"


def main():
    recipe = Stage0Recipe.from_file(RECIPE)
    variants = VariantConfig(
        {"c_compiler": ["gcc"], "rust_compiler": ["rust"], "c_stdlib": ["sysroot"], "python": ["3.11.* *_cpython"]}
    )
    (rendered,) = recipe.render(variants, RenderConfig(platform=PlatformConfig(target_platform="linux-64")))
    package = rendered.recipe.package
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())["project"]
    run = {str(one).replace(" ", "") for one in rendered.recipe.requirements.run}
    wanted = {*project["dependencies"], f"python{project['requires-python']}"}
    faults = []
    if str(package.version) != version:
        faults.append(f"the recipe is for version {package.version}, Cargo.toml for {version}")
    if run != wanted:
        faults.append(f"the recipe needs {sorted(run)}, the package {sorted(wanted)}")
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print(f"{RECIPE.relative_to(ROOT)}: ok, {package.name} {package.version}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
