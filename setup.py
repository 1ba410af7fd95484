"""What pyproject.toml cannot say: the families of examples/ are a folder of the installed package, too."""

from setuptools import find_packages, setup

PAGES = ["board/page/*", "board/page/vendor/*", "serving/page/*"]

setup(
    packages=[*find_packages(include=["xdpx*"]), "xdpx.families"],
    package_dir={"xdpx.families": "examples/families"},
    package_data={
        "xdpx": ["py.typed", "config/catalogue.json", "reports/page.html.j2", *PAGES],
        "xdpx.families": ["*.hjson"],
    },
)
