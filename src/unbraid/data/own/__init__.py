"""Users' own data: folders of images, files of arrays or tables, arrays in memory and torch datasets."""
