"""Data of the user: folders of images, files of arrays, arrays in memory, torch datasets."""
