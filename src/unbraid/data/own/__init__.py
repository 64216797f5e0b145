"""Users' own data: folders of images, files of arrays, arrays in memory and torch datasets."""
