"""Pictures as SVG elements whose colours are the page's."""
